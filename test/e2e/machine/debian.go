// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The releases of Debian that packages are unpacked from: the machine's own, and the one after it.
const (
	bookworm = "bookworm"
	trixie   = "trixie"
)

// OpenVSwitch gives a folder with Open vSwitch 3.5 of Debian 13 and the libraries that it was built for. 3.1.0 of
// Debian 12 aborts under bursts of load-balanced connections (conntrack.c:1063, 14 times in an hour; 3.5.0 never).
func OpenVSwitch(ctx context.Context, cache string, progress io.Writer) (string, error) {
	return unpacked(ctx, cache, "e2e-openvswitch-", trixie, []string{"openvswitch-switch"}, progress)
}

// unpacked gives a folder of the cache in which packages of a release of Debian are unpacked, with all that they depend
// on. Nothing is installed and none of their scripts runs. It is filled once for the release, the packages and the
// machine's architecture; what the release changes later is not fetched until the folder is removed.
func unpacked(
	ctx context.Context, cache, prefix, release string, packages []string, progress io.Writer,
) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, "1", release, runtime.GOARCH, packages) // the number is of the way in which they are unpacked
	return cached(cache, prefix, hash, func(partial string) error {
		fmt.Fprintf(progress, "unpacking %s of Debian's %s\n", strings.Join(packages, " "), release)
		began := time.Now()
		if err := unpack(ctx, partial, release, packages); err != nil {
			return fmt.Errorf("unpacking %s of Debian's %s: %w", strings.Join(packages, " "), release, err)
		}
		fmt.Fprintf(progress, "unpacked in %.0f s\n", time.Since(began).Seconds())
		return nil
	})
}

// unpack fetches packages and unpacks them into a folder. apt works with lists and a state of its own, as if nothing
// were installed.
func unpack(ctx context.Context, into, release string, packages []string) error {
	work := into + ".apt"
	defer func() { _ = os.RemoveAll(work) }() // of the cache; the next run's folder has another name
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return err
		}
	}
	mirror, err := mirror(ctx)
	if err != nil {
		return err
	}
	source := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + mirror + " " + release + " main\n"
	for name, content := range map[string]string{"sources.list": source, "status": ""} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	options := []string{
		"-qq", "-y", "-oDir::State=" + work, "-oDir::State::lists=" + work + "/lists",
		"-oDir::State::status=" + work + "/status", "-oDir::Cache=" + work, "-oDir::Cache::archives=" + work + "/archives",
		"-oDir::Etc::sourcelist=" + work + "/sources.list", "-oDir::Etc::sourceparts=-", "-oDir::Etc::preferencesparts=-",
		"-oAPT::Sandbox::User=root", "-oAPT::Install-Recommends=false", "-oAcquire::Languages=none", "-oDebug::NoLocking=1",
	}
	for _, args := range [][]string{{"update"}, slices.Concat([]string{"--download-only", "install"}, packages)} {
		if _, err := run(interruptible(ctx, "apt-get", slices.Concat(options, args)...)); err != nil {
			return err
		}
	}
	archives, err := filepath.Glob(filepath.Join(work, "archives", "*.deb"))
	if err != nil || len(archives) == 0 {
		return errors.Join(err, errors.New("apt has fetched no package"))
	}
	for _, archive := range archives {
		if _, err := run(interruptible(ctx, "dpkg-deb", "-x", archive, into)); err != nil {
			return err
		}
	}
	return nil
}

// mirror is the address of Debian's packages in apt's own sources.
func mirror(ctx context.Context) (string, error) {
	out, err := run(interruptible(ctx, "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)",
		"Created-By: Packages"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if address, found := strings.CutPrefix(line, bookworm+" "); found {
			return strings.TrimSpace(address), nil
		}
	}
	return "", fmt.Errorf("apt's sources do not name %s of Debian: add it to /etc/apt/sources.list.d", bookworm)
}

// interruptible is a program that may be ended at any time, with its children.
func interruptible(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, args...)
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	return command
}
