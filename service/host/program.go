// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kuryr/raven/service/host/confine"
)

// ErrUntrusted says that others than root and Raven's own user may change an executable, or put another one in its
// place.
var ErrUntrusted = errors.New("is not safe to run")

// ErrDigest says that an executable is not the one whose digest is configured.
var ErrDigest = errors.New("is not the program that was pinned")

// program is an executable that was opened once: what was checked is what runs, whatever stands under its name by then.
type program struct {
	path   string
	file   *os.File
	script bool // an interpreter runs it
	pinned bool
}

// openProgram opens and checks an executable. Only root and this user may write to it and
// to the folders on the way to it; with a digest its content must have that.
func openProgram(path, digest string) (*program, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := checkExecutable(path); err != nil {
		return nil, err
	}
	resolved, err := trusted(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(resolved, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrPermission) && digest == "" {
		return &program{path: path}, nil // it can be executed but not read
	}
	if err != nil {
		return nil, err
	}
	p := &program{path: path, file: file, pinned: digest != ""}
	if err := p.check(digest); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

func (p *program) check(digest string) error {
	info, err := p.file.Stat() // of what is open, not of what has its name now
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", p.path)
	}
	if err := trustedInfo(p.path, info); err != nil {
		return err
	}
	start := make([]byte, 2)
	if count, err := p.file.ReadAt(start, 0); err == nil && count == 2 {
		p.script = string(start) == "#!"
	}
	if digest == "" {
		return nil
	}
	found, err := digestOf(p.file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", p.path, err)
	}
	if !strings.EqualFold(found, digest) {
		return fmt.Errorf("%s %w: it has sha256 %s, configured is %s; if it was replaced on purpose, configure the new one",
			p.path, ErrDigest, found, digest)
	}
	return nil
}

func digestOf(file io.ReaderAt) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, 1<<62)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Digest returns the sha256 of an executable, in hexadecimal, as Config.SHA256 wants it.
func Digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read
	return digestOf(file)
}

// byDescriptor says whether it is executed by its descriptor. A script is not, unless it was pinned: its interpreter
// would not find what lies beside it.
func (p *program) byDescriptor() bool { return p.file != nil && (p.pinned || !p.script) }

// unreachable says why another user may not execute it; empty: he may. What is executed by its descriptor need not be
// reached by its path.
func (p *program) unreachable() string {
	paths := []string{p.path}
	if p.byDescriptor() {
		info, err := p.file.Stat()
		if err == nil && info.Mode().Perm()&0o001 != 0 {
			return ""
		}
		return fmt.Sprintf("the mode of %s is %s", p.path, info.Mode())
	}
	if interpreter := confine.Interpreter(p.path); interpreter != "" {
		paths = append(paths, interpreter)
	}
	for _, path := range paths {
		resolved, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue // executing it will say more
		}
		for ; resolved != "/"; resolved = filepath.Dir(resolved) {
			info, err := os.Stat(resolved)
			if err == nil && info.Mode().Perm()&0o001 == 0 {
				return fmt.Sprintf("the mode of %s is %s", resolved, info.Mode())
			}
		}
	}
	return ""
}

func (p *program) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}

// maxLinks is how many symbolic links a path may lead over, as for the kernel.
const maxLinks = 40

// trusted follows a path, link by link, and returns what it leads to when every folder on the way is safe from others.
func trusted(path string) (string, error) {
	at, links := "/", 0
	rest := strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	if err := trustedFolder(at, false); err != nil {
		return "", err
	}
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", fmt.Errorf("%s leads over too many links", path)
			}
			target, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(strings.Trim(filepath.Clean(target), "/"), "/"), rest...)
		case info.IsDir():
			at = next
			if err := trustedFolder(at, len(rest) == 1); err != nil {
				return "", err
			}
		default:
			return next, trustedInfo(next, info)
		}
	}
	return "", fmt.Errorf("%s is a folder, not an executable", path)
}

// trustedFolder lets a folder with the sticky bit pass on the way, since no user can replace other users' files there,
// but not as the folder of the executable itself, where anybody might add one.
func trustedFolder(path string, last bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSticky != 0 && !last {
		return trustedOwner(path, info)
	}
	return trustedInfo(path, info)
}

func trustedInfo(path string, info fs.FileInfo) error {
	if err := trustedOwner(path, info); err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case mode&0o002 != 0:
		return fmt.Errorf("%s %w: everybody may write to it (mode %s): chmod go-w %s", path, ErrUntrusted, info.Mode(), path)
	case mode&0o020 != 0 && ok && !privateGroup(owner.Gid):
		return fmt.Errorf("%s %w: group %d may write to it (mode %s): chmod go-w %s", path, ErrUntrusted, owner.Gid,
			info.Mode(), path)
	}
	return nil
}

func trustedOwner(path string, info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s %w: it belongs to user %d, which is neither root nor the user that Raven runs as (%d)", path,
			ErrUntrusted,
			owner.Uid, os.Geteuid())
	}
	return nil
}

// privateGroup says whether a group is root's, or the one that this user has for himself and that is called like him.
func privateGroup(gid uint32) bool {
	if gid == 0 {
		return true
	}
	if int(gid) != os.Getegid() {
		return false
	}
	group, err := user.LookupGroupId(strconv.Itoa(int(gid)))
	if err != nil {
		return false
	}
	own, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	return err == nil && own.Username == group.Name
}
