package machine

import (
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

// Install installs the packages that are missing. No service starts with them, now or at the next boot, but for those that
// were there before. An interrupt ends it while packages are fetched; what is being installed is finished first.
func Install(ctx context.Context, progress io.Writer) error {
	return installer{root: "/", progress: progress}.install(ctx)
}

// installer installs on the machine whose files are below root.
type installer struct {
	root     string
	progress io.Writer
}

func (i installer) install(ctx context.Context) error {
	missing, err := Missing(ctx)
	if err != nil || len(missing) == 0 && !i.unfinished() {
		return err
	}
	before, undo, err := i.denyServices()
	if err != nil {
		return fmt.Errorf("keeping the packages' services from starting: %w", err)
	}
	if len(missing) > 0 {
		fmt.Fprintf(i.progress, "installing %s\n", strings.Join(missing, " "))
		err = i.packages(ctx, missing)
	}
	return errors.Join(err, i.keepFromBoot(context.WithoutCancel(ctx), before), undo())
}

// packages fetches and installs.
func (i installer) packages(ctx context.Context, missing []string) error {
	const lock = "-oDPkg::Lock::Timeout=600" // somebody may be updating
	if err := fetch(ctx, "apt-get", lock, "-qq", "update"); err != nil {
		return err
	}
	args := func(more ...string) []string {
		return slices.Concat([]string{lock, "-oDpkg::Use-Pty=0", "-qq", "-y", "--no-install-recommends"}, more, []string{"install"}, missing)
	}
	err := fetch(ctx, "apt-get", args("--download-only")...)
	if err != nil && strings.Contains(err.Error(), "dpkg --configure -a") { // apt's word for a dpkg that was killed
		fmt.Fprintln(i.progress, "finishing what a dpkg had begun that was killed")
		if err = i.finish(ctx, "dpkg", "--configure", "-a"); err == nil {
			err = fetch(ctx, "apt-get", args("--download-only")...)
		}
	}
	if err != nil {
		return err
	}
	return i.finish(ctx, "apt-get", args()...)
}

// fetch runs a program that may be ended at any time.
func fetch(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	return run(command)
}

// finish runs a program to its end, whatever happens to ctx meanwhile: a dpkg that is killed leaves a machine that installs nothing until somebody has
// put it right. apt's own patience with locks bounds it.
func (i installer) finish(ctx context.Context, name string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- run(exec.CommandContext(context.WithoutCancel(ctx), name, args...)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		fmt.Fprintln(i.progress, "the packages that are being installed are finished first; a few minutes at most")
		return errors.Join(<-ended, ctx.Err())
	}
}

// run runs a program out of reach of the terminal's interrupts. Its error has the end of what it printed.
func run(command *exec.Cmd) error {
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, end(out))
	}
	return nil
}

const (
	policyFile = "usr/sbin/policy-rc.d"
	// policyMark tells our policy from the machine's own: one that is left over is of an installation that was killed.
	policyMark = "# raven-e2e installs packages, whose services are not to start. What starts at boot without them:\n"
	policyUnit = "# - "
)

// unfinished says whether an installation was killed after it had denied the start of services.
func (i installer) unfinished() bool {
	content, err := os.ReadFile(filepath.Join(i.root, policyFile))
	return err == nil && strings.Contains(string(content), policyMark)
}

// denyServices keeps packages from starting their services at installation, as Debian's policy-rc.d allows to, and says what starts at boot before they
// come. A machine that has such a file keeps its own.
func (i installer) denyServices() (before []string, undo func() error, err error) {
	path := filepath.Join(i.root, policyFile)
	undo = func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // another run of this has finished it
			return err
		}
		return nil
	}
	if i.unfinished() {
		content, err := os.ReadFile(path)
		for line := range strings.Lines(string(content)) {
			if unit, found := strings.CutPrefix(line, policyUnit); found {
				before = append(before, strings.TrimSpace(unit))
			}
		}
		return before, undo, err
	}
	before = i.startsAtBoot()
	text := "#!/bin/sh\n" + policyMark
	for _, unit := range before {
		text += policyUnit + unit + "\n"
	}
	written := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(written, []byte(text+"exit 101\n"), 0o755); err != nil {
		return nil, nil, err
	}
	err = os.Link(written, path) // all of it or nothing
	if errors.Is(err, os.ErrExist) {
		err, undo = nil, func() error { return nil }
	}
	return before, undo, errors.Join(err, os.Remove(written))
}

// startsAtBoot lists the units that are enabled ("x.service") and the scripts of System V ("x"). What starts other things is not
// in it, nor are systemd's own, which a machine without it gets with the packages.
func (i installer) startsAtBoot() []string {
	var names []string
	for _, kind := range []string{"service", "socket", "path"} {
		links, _ := filepath.Glob(filepath.Join(i.root, "etc/systemd/system/*.*/*."+kind)) // the pattern is right
		for _, link := range links {
			if name := filepath.Base(link); !strings.HasPrefix(name, "systemd-") && !strings.HasPrefix(name, "getty@") {
				names = append(names, name)
			}
		}
	}
	links, _ := filepath.Glob(filepath.Join(i.root, "etc/rc[2-5].d/S[0-9][0-9]*"))
	for _, link := range links {
		names = append(names, filepath.Base(link)[len("S00"):])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// keepFromBoot disables what starts at boot now and did not before. It can be enabled again, and stays as it is when packages are upgraded.
func (i installer) keepFromBoot(ctx context.Context, before []string) error {
	var errs []error
	for _, name := range i.startsAtBoot() {
		if slices.Contains(before, name) || !slices.Contains(i.startsAtBoot(), name) { // it went with another one
			continue
		}
		var err error
		if strings.Contains(name, ".") {
			err = run(exec.CommandContext(ctx, "systemctl", "disable", "--quiet", name))
		} else {
			err = run(exec.CommandContext(ctx, "update-rc.d", name, "disable"))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s came with the packages and starts at the next boot: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
