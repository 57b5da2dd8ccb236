// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// maxHolders is how many processes of one host and one folder have names that stay.
const maxHolders = 16

// Holder is the name under which a process of this host holds a Lease. As long as it is not closed, no other process
// has that name: who finds it in a Lease knows that its predecessor is dead, and takes the Lease over at once.
//
// The name rests on a file that is locked, on what the kernel knows it by, and on the boot of the kernel: a copy of the
// folder, another container with the same host name or a machine that was started again has another name.
type Holder struct {
	// Name is the host's name and a part that tells this file from all others.
	Name string
	file *os.File
}

// NewHolder locks a file in the folder, which it makes if need be. Without a folder that can be used the error says
// why, and the holder has a name that no process had before or will have again.
func NewHolder(folder string) (*Holder, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err == nil {
		for slot := range maxHolders {
			h, locked := lockedHolder(filepath.Join(folder, fmt.Sprintf("holder-%d.lock", slot)), host, string(boot))
			if locked == nil {
				return h, nil
			}
			err = locked
			if !errors.Is(locked, unix.EWOULDBLOCK) {
				break
			}
		}
	}
	return &Holder{Name: host + "_" + string(uuid.NewUUID())},
		fmt.Errorf("locking a file in %s: %w; after a crash of this process the next one waits until the Lease expires",
			folder, err)
}

// lockedHolder is the holder that a file stands for, if no other process has it.
func lockedHolder(path, host, boot string) (*Holder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unix.Fstat(int(file.Fd()), &stat)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d", strings.TrimSpace(boot), stat.Dev, stat.Ino))
	return &Holder{Name: host + "_" + hex.EncodeToString(sum[:6]), file: file}, nil
}

// Close gives the name up. The file stays, and with it the name of the next process.
func (h *Holder) Close() error {
	if h == nil || h.file == nil {
		return nil
	}
	return h.file.Close()
}
