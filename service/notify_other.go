// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package service

// monotonicMicros is unknown where there is no systemd.
func monotonicMicros() (int64, bool) { return 0, false }
