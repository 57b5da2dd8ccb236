// SPDX-License-Identifier: Apache-2.0

package service

import "golang.org/x/sys/unix"

// monotonicMicros is CLOCK_MONOTONIC, which systemd compares with its own.
func monotonicMicros() (int64, bool) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, false
	}
	return now.Nano() / 1000, true
}
