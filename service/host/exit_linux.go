// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitExit returns when a child has ended and leaves it to be waited for, so that its number is still its own.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
