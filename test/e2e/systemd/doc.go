// SPDX-License-Identifier: Apache-2.0

// Package systemd holds Raven's Debian package and `raven service` to what a real systemd does with them: process 1
// of new namespaces, on a copy of this machine that is forgotten afterwards. The cluster and the cloud are simulated.
// It must never write to the machine itself, nor start anything of it but systemd and its journal.
//
// It has the build tag e2e, and needs root, a Debian with systemd, and dist/ of `make package` (or RAVEN_E2E_DIST):
//
//	make package && go test -tags e2e -v ./test/e2e/systemd
package systemd
