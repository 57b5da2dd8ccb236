// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"io"
	"path/filepath"
)

// ControlPlane gives the program of test/e2e/kubernetes: etcd, Kubernetes' control plane and kwok. modules is the
// folder of that module. It is built once for its sources, its pinned modules and the version of Go, and kept in
// cache; then this takes no time. Built, it takes 10 minutes on two cores with empty caches, 20 s with Go's own caches
// filled (measured).
func ControlPlane(ctx context.Context, modules, cache string, progress io.Writer) (string, error) {
	dir, err := goPrograms{
		prefix: "e2e-controlplane-", source: filepath.Join(modules, "kubernetes"), packages: []string{"."},
		what: "etcd, Kubernetes' control plane and kwok; up to 15 minutes with empty caches",
	}.build(ctx, cache, progress)
	return filepath.Join(dir, "kubernetes"), err
}
