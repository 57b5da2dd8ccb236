// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Install installs the packages that are missing. No service starts with them, now or at the next boot. An interrupt
// ends it while packages are fetched; what is being installed is finished first.
func Install(ctx context.Context, progress io.Writer) error {
	return installer{root: "/", progress: progress, patience: 10 * time.Minute, pause: 5 * time.Second}.install(ctx)
}

// installer installs on the machine whose files are below root.
type installer struct {
	root     string
	progress io.Writer
	patience time.Duration // with those who hold apt's locks
	pause    time.Duration // between two looks at a lock
}

func (i installer) install(ctx context.Context) error {
	release, err := i.alone(ctx)
	if err != nil {
		return err
	}
	defer release()
	missing, err := Missing(ctx)
	if err != nil || len(missing) == 0 && !i.unfinished() {
		return err
	}
	undo, err := i.denyServices()
	if err != nil {
		return fmt.Errorf("keeping the packages' services from starting: %w", err)
	}
	if len(missing) > 0 {
		fmt.Fprintf(i.progress, "installing %s\n", strings.Join(missing, " "))
		err = i.packages(ctx, missing)
	}
	if err = errors.Join(err, i.keepFromBoot(context.WithoutCancel(ctx))); err == nil {
		err = i.forget()
	}
	return errors.Join(err, ctx.Err(), undo())
}

// alone waits until nobody else installs with this. Its lock ends with the process: what is left over then is of one
// that was killed.
func (i installer) alone(ctx context.Context) (release func(), err error) {
	file, err := os.OpenFile(filepath.Join(i.root, "run/raven-e2e-install.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	release = func() { _ = file.Close() } // nothing was written
	for told := false; ; told = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return release, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			release()
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		if !told {
			fmt.Fprintln(i.progress, "another raven-e2e installs packages; waiting until it has ended")
		}
		select {
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		case <-time.After(i.pause):
		}
	}
}

// packages fetches and installs.
func (i installer) packages(ctx context.Context, missing []string) error {
	const lock = "-oDPkg::Lock::Timeout=600" // somebody may be installing; only installations wait for it
	if err := i.fetch(ctx, "apt-get", lock, "-qq", "update"); err != nil {
		return err
	}
	args := func(more ...string) []string {
		return slices.Concat([]string{lock, "-oDpkg::Use-Pty=0", "-qq", "-y", "--no-install-recommends"}, more,
			[]string{"install"}, missing)
	}
	err := i.fetch(ctx, "apt-get", args("--download-only")...)
	if err != nil && strings.Contains(err.Error(), "dpkg --configure -a") { // apt's word for a dpkg that was killed
		fmt.Fprintln(i.progress, "finishing what a dpkg had begun that was killed")
		if err = i.finish(ctx, "dpkg", "--configure", "-a"); err == nil {
			err = i.fetch(ctx, "apt-get", args("--download-only")...)
		}
	}
	if err != nil {
		return err
	}
	if err := i.note(ctx, args("-s")); err != nil {
		return fmt.Errorf("noting which packages come: %w", err)
	}
	return i.finish(ctx, "apt-get", args()...)
}

// fetch runs a program that may be ended at any time. apt does not wait for the locks of its lists and archives by
// itself, and a new machine updates itself in its first minutes.
func (i installer) fetch(ctx context.Context, name string, args ...string) error {
	late := time.After(i.patience)
	for told := false; ; told = true {
		command := exec.CommandContext(ctx, name, args...)
		command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
		command.WaitDelay = 10 * time.Second
		_, err := run(command)
		if err == nil || !strings.Contains(err.Error(), "Could not get lock") { // apt has no status for it
			return err
		}
		if !told {
			fmt.Fprintf(i.progress, "apt is in use by somebody else; waiting up to %s for its lock\n", i.patience)
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-late:
			return fmt.Errorf("waited %s for somebody else to be done with apt: %w", i.patience, err)
		case <-time.After(i.pause):
		}
	}
}

// finish runs a program to its end, whatever happens to ctx meanwhile: a dpkg that is killed leaves a machine that
// installs nothing until somebody has put it right. apt's own patience with locks bounds it.
func (i installer) finish(ctx context.Context, name string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	wait, err := begin(command)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := wait()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		fmt.Fprintf(i.progress,
			"the packages that are being installed are finished first; a few minutes at most. Another Ctrl-C changes "+
				"nothing. If it hangs, `kill -- -%d` ends it, and the next run finishes the packages\n", command.Process.Pid)
		return <-ended
	}
}

// run runs a program out of reach of the terminal's interrupts, and gives what it printed. Its error has the end of
// that.
func run(command *exec.Cmd) (string, error) {
	wait, err := begin(command)
	if err != nil {
		return "", err
	}
	return wait()
}

func begin(command *exec.Cmd) (wait func() (string, error), err error) {
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	// some of what they say is read
	command.Env = append(command.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "LANGUAGE=C")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	told := func(err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, end(out.Bytes()))
		}
		return nil
	}
	if err := command.Start(); err != nil {
		return nil, told(err)
	}
	return func() (string, error) {
		err := told(command.Wait())
		return out.String(), err
	}, nil
}
