// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	policyFile = "usr/sbin/policy-rc.d"
	// policyMark tells our policy from the machine's own: one that is left over is of an installation that was killed.
	policyMark = "# raven-e2e installs packages, whose services are not to start."
	// cameFile lists the packages that come or came, until none of their services starts at boot. It outlives a reset.
	cameFile = "var/lib/raven-e2e.packages"
	cameMark = "# raven-e2e installs these packages, and keeps their services from starting at boot then.\n"
)

// unfinished says whether an installation did not come to its end.
func (i installer) unfinished() bool {
	_, err := os.Stat(filepath.Join(i.root, cameFile))
	return err == nil || i.denies()
}

// denies says whether there is a policy that is ours.
func (i installer) denies() bool {
	content, _ := os.ReadFile(filepath.Join(i.root, policyFile)) // none: then it is not ours
	return strings.Contains(string(content), policyMark)
}

// denyServices keeps packages from starting their services at installation, as Debian's policy-rc.d allows to. A
// machine that has such a file keeps its own.
func (i installer) denyServices() (undo func() error, err error) {
	path := filepath.Join(i.root, policyFile)
	written := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(written, []byte("#!/bin/sh\n"+policyMark+"\nexit 101\n"), 0o755); err != nil {
		return nil, err
	}
	if err := os.Link(written, path); err != nil && !errors.Is(err, os.ErrExist) { // all of it or nothing
		return nil, errors.Join(err, os.Remove(written))
	}
	undo = func() error {
		if !i.denies() {
			return nil
		}
		return os.Remove(path)
	}
	return undo, os.Remove(written)
}

// note adds the packages to the list that apt would install, and not only upgrade.
func (i installer) note(ctx context.Context, simulate []string) error {
	came, err := i.came()
	if err != nil {
		return err
	}
	plan, err := run(exec.CommandContext(ctx, "apt-get", simulate...))
	if err != nil {
		return err
	}
	// "Inst x [1.0] (1.1": an upgrade
	for _, found := range regexp.MustCompile(`(?m)^Inst (\S+) \(`).FindAllStringSubmatch(plan, -1) {
		came = append(came, plain(found[1]))
	}
	slices.Sort(came)
	path := filepath.Join(i.root, cameFile)
	text := cameMark + strings.Join(slices.Compact(came), "\n") + "\n"
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// came reads the list.
func (i installer) came() ([]string, error) {
	content, err := os.ReadFile(filepath.Join(i.root, cameFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(strings.TrimPrefix(string(content), cameMark)), err
}

// forget ends an installation: what starts at boot from now on is somebody's will.
func (i installer) forget() error {
	if err := os.Remove(filepath.Join(i.root, cameFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// plain is a package's name without its architecture.
func plain(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return name
}

// unit is what starts at boot: systemd's ("x.service"), or a script of System V ("x"). Its links say so.
type unit struct {
	name, file string
	links      []string
}

func (u unit) script() bool { return strings.HasPrefix(u.file, "/etc/init.d/") }

// startsAtBoot lists the units and the scripts that start at boot, in the order of their names. What starts other
// things is not in it, nor are systemd's own, which a machine without it gets with the packages.
func (i installer) startsAtBoot() []unit {
	var units []unit
	const scripts = "etc/rc[2-5].d/S[0-9][0-9]*"
	for _, pattern := range []string{
		"etc/systemd/system/*.*/*.service", "etc/systemd/system/*.*/*.socket", "etc/systemd/system/*.*/*.path", scripts,
	} {
		links, _ := filepath.Glob(filepath.Join(i.root, pattern)) // the pattern is right
		for _, link := range links {
			file, err := os.Readlink(link)
			name := filepath.Base(link)
			if err != nil || strings.HasPrefix(name, "systemd-") || strings.HasPrefix(name, "getty@") {
				continue
			}
			if pattern == scripts {
				name = name[len("S00"):]
			}
			if !filepath.IsAbs(file) {
				file = filepath.Join("/", strings.TrimPrefix(filepath.Dir(link), i.root), file)
			}
			if at := slices.IndexFunc(units, func(u unit) bool { return u.name == name && u.file == file }); at >= 0 {
				units[at].links = append(units[at].links, link)
				continue
			}
			units = append(units, unit{name: name, file: file, links: []string{link}})
		}
	}
	slices.SortFunc(units, func(a, b unit) int { return strings.Compare(a.name, b.name) })
	return units
}

// keepFromBoot disables what starts at boot and came with the packages of the list; what is of others stays. It can
// be enabled again, and stays as it is when packages are upgraded.
func (i installer) keepFromBoot(ctx context.Context) error {
	came, err := i.came()
	if err != nil || len(came) == 0 {
		return err
	}
	units := i.startsAtBoot()
	owners, err := packagesOf(ctx, units)
	if err != nil {
		return err
	}
	var errs []error
	for _, u := range units {
		owner := owners[u.file]
		if !slices.Contains(came, owner) {
			continue
		}
		if err := u.disable(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s came with the package %s and starts at the next boot: %w", u.name, owner, err))
			continue
		}
		fmt.Fprintf(i.progress, "%s of the new package %s will not start at boot\n", u.name, owner)
	}
	return errors.Join(errs...)
}

// packagesOf says which package each unit's file is of, by the file.
func packagesOf(ctx context.Context, units []unit) (map[string]string, error) {
	asked := []string{"-S"}
	for _, u := range units {
		asked = append(asked, u.file, otherwise(u.file))
	}
	if len(units) == 0 {
		return nil, nil
	}
	// It fails for files that are of no package, and prints the others.
	out, err := exec.CommandContext(ctx, "dpkg-query", asked...).Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, fmt.Errorf("asking which packages the services are of: %w", err)
	}
	owners := map[string]string{}
	for line := range strings.Lines(string(out)) {
		owner, file, _ := strings.Cut(strings.TrimSpace(line), ": ")
		owners[file], owners[otherwise(file)] = plain(owner), plain(owner)
	}
	return owners, nil
}

// otherwise is the other name of a file: /lib is /usr/lib, and packages have either.
func otherwise(file string) string {
	if rest, found := strings.CutPrefix(file, "/usr/lib/"); found {
		return "/lib/" + rest
	}
	if strings.HasPrefix(file, "/lib/") {
		return "/usr" + file
	}
	return file
}

// disable keeps a unit from starting at boot, if it did not go with another one. A machine whose systemd was to come,
// and did not, has only the links.
func (u unit) disable(ctx context.Context) error {
	links := slices.DeleteFunc(slices.Clone(u.links), func(link string) bool {
		_, err := os.Lstat(link)
		return err != nil
	})
	if len(links) == 0 {
		return nil
	}
	command := exec.CommandContext(ctx, "systemctl", "disable", "--quiet", u.name)
	if u.script() {
		command = exec.CommandContext(ctx, "update-rc.d", filepath.Base(u.file), "disable")
	}
	if errors.Is(command.Err, exec.ErrNotFound) {
		var errs []error
		for _, link := range links {
			errs = append(errs, os.Remove(link))
		}
		return errors.Join(errs...)
	}
	_, err := run(command)
	return err
}
