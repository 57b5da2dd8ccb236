// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// owner is whose the unit is that systemd would use.
type owner int

const (
	absent    owner = iota // there is none
	installed              // made by Install
	packaged               // from a package or make install
	foreign                // another's below /etc
)

// unitFile finds the service's unit.
//
//	/etc/systemd/system/NAME.service   begins with the marker: made by Install, else foreign
//	/usr/lib, /usr/local/lib, /lib     packaged
func (m *Manager) unitFile() (owner, string, error) {
	file := m.c.Name + ".service"
	own := m.path("/etc/systemd/system/" + file)
	info, err := os.Lstat(own)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return foreign, own, nil // masked, or an alias
	case err == nil:
		text, err := os.ReadFile(own)
		if err != nil {
			return absent, own, fmt.Errorf("reading the unit: %w", err)
		}
		if strings.HasPrefix(string(text), m.marker()+"\n") {
			return installed, own, nil
		}
		return foreign, own, nil
	case !errors.Is(err, fs.ErrNotExist):
		return absent, own, fmt.Errorf("searching for the unit: %w", err)
	}
	for _, dir := range []string{"/usr/local/lib", "/usr/lib", "/lib"} {
		path := m.path(filepath.Join(dir, "systemd/system", file))
		if _, err := os.Stat(path); err == nil {
			return packaged, path, nil
		}
	}
	return absent, own, nil
}

// Install installs the service and lets it start with the machine; it does not start it. It returns what it did, for
// people. Installed again, it changes what is different. Where it fails nothing stays.
func (m *Manager) Install(ctx context.Context) ([]string, error) {
	if err := m.privileged(); err != nil {
		return nil, err
	}
	if !m.Systemd() {
		return m.installElsewhere()
	}
	whose, path, err := m.unitFile()
	if err != nil {
		return nil, err
	}
	switch whose {
	case foreign:
		return nil, fmt.Errorf("%s is there, but %w: remove it first", path, ErrForeign)
	case packaged:
		return m.enablePackaged(ctx, path)
	case installed, absent:
	}
	if err := m.reachable(); err != nil {
		return nil, err
	}
	if whose == installed {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the unit: %w", err)
		}
		if string(text) == m.unit() {
			_, err := m.run(ctx, "systemctl", "enable", m.c.Name)
			return []string{path + " is there already"}, err
		}
	}
	return m.installUnit(ctx, whose == installed, path)
}

func (m *Manager) installUnit(ctx context.Context, again bool, path string) ([]string, error) {
	done, err := m.makeUser(ctx)
	if err == nil && again {
		err = m.control.Uninstall() // kardianos changes no unit that is there; a service that runs goes on
	}
	if err == nil {
		err = m.control.Install()
	}
	if err == nil {
		return append(done, "made and enabled "+path), nil
	}
	err = fmt.Errorf("installing the unit: %w", err)
	if again {
		return nil, err
	}
	undo := context.WithoutCancel(ctx)
	if rerr := os.Remove(path); rerr == nil {
		_, rerr = m.run(undo, "systemctl", "daemon-reload")
		err = errors.Join(err, rerr)
	}
	return nil, errors.Join(err, m.removeUser(undo))
}

// enablePackaged leaves a package's unit as it is.
func (m *Manager) enablePackaged(ctx context.Context, path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the unit: %w", err)
	}
	if own := strings.Join(m.words()[1:], " "); own != argumentsOf(string(text)) {
		return nil,
			fmt.Errorf("a package has installed %s, which is not started with %q; its command line is changed by %q, not by "+
				"this command",
				path, own, "systemctl edit "+m.c.Name)
	}
	if _, err := m.run(ctx, "systemctl", "enable", m.c.Name); err != nil {
		return nil, err
	}
	return []string{"enabled " + path + ", which a package has installed"}, nil
}

// argumentsOf is what a unit starts its program with, as it is written there.
func argumentsOf(unit string) string {
	for line := range strings.Lines(unit) {
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
			_, arguments, _ := strings.Cut(strings.TrimSpace(command), " ")
			return strings.TrimSpace(arguments)
		}
	}
	return ""
}

// reachable refuses files that the unit hides from the service.
func (m *Manager) reachable() error {
	for _, file := range append([]string{m.c.Executable}, m.c.Files...) {
		for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
			if strings.HasPrefix(file, hidden) {
				return fmt.Errorf("the service cannot see %s: %s is hidden from it, so that it needs no trust; put the file "+
					"elsewhere, for example below /usr/local or /etc", file, strings.TrimSuffix(hidden, "/"))
			}
		}
	}
	return nil
}

func (m *Manager) installElsewhere() ([]string, error) {
	if status, err := m.control.Status(); err == nil {
		_ = status // installed, whatever it does
		return []string{"it is there already"}, nil
	}
	if err := m.control.Install(); err != nil {
		if strings.Contains(err.Error(), "already exists") {
			return []string{"it is there already"}, nil
		}
		return nil, fmt.Errorf("installing the service: %w", err)
	}
	return []string{"made a service of " + m.platform + "; it runs as root, since only systemd confines it"}, nil
}

// Uninstall stops the service and removes all that Install made, and what the service has kept; no configuration.
// It returns what it did, for people. Where there is nothing, that is fine.
func (m *Manager) Uninstall(ctx context.Context) ([]string, error) {
	if err := m.privileged(); err != nil {
		return nil, err
	}
	if !m.Systemd() {
		return m.uninstallElsewhere()
	}
	whose, path, err := m.unitFile()
	if err != nil {
		return nil, err
	}
	switch whose {
	case foreign:
		return nil, fmt.Errorf("%s is %w: remove it as it came", path, ErrForeign)
	case absent:
		return []string{"it is not installed"}, m.removeUser(ctx)
	case packaged:
		if _, err := m.run(ctx, "systemctl", "disable", "--now", m.c.Name); err != nil {
			return nil, err
		}
		return []string{"stopped and disabled " + path + "; removing its package removes it"}, nil
	case installed:
	}
	if err := m.control.Stop(); err != nil {
		return nil, fmt.Errorf("stopping the service: %w", err)
	}
	for _, dir := range m.c.Kept {
		if err := os.RemoveAll(m.path(dir)); err != nil {
			return nil, fmt.Errorf("removing what the service has kept: %w", err)
		}
	}
	for _, dir := range m.c.Shared {
		_ = os.Remove(m.path(dir)) // refused unless it is empty
	}
	_, _ = m.run(ctx, "systemctl", "reset-failed", m.c.Name) // an error where it has not failed
	if err := m.control.Uninstall(); err != nil {
		return nil, fmt.Errorf("removing the unit: %w", err)
	}
	if err := m.removeUser(ctx); err != nil {
		return nil, err
	}
	done := []string{"stopped and removed " + path}
	if dropins := path + ".d"; exists(dropins) {
		done = append(done, "left "+dropins+", which is yours")
	}
	return done, nil
}

func (m *Manager) uninstallElsewhere() ([]string, error) {
	_ = m.control.Stop() // it may not run
	if err := m.control.Uninstall(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return []string{"it is not installed"}, nil
		}
		return nil, fmt.Errorf("removing the service: %w", err)
	}
	return []string{"stopped and removed the service of " + m.platform}, nil
}

func (m *Manager) sysusersFile() string { return m.path("/etc/sysusers.d/" + m.c.Name + ".conf") }

// makeUser declares the user that the unit names, unless a package did.
func (m *Manager) makeUser(ctx context.Context) ([]string, error) {
	if m.c.Sysusers == "" || m.userPackaged() {
		return nil, nil
	}
	file := m.sysusersFile()
	text := m.marker() + "\n" + m.c.Sysusers
	if old, err := os.ReadFile(file); err == nil && string(old) == text {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // as all of /etc
		return nil, fmt.Errorf("declaring the user: %w", err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // no secret
		return nil, fmt.Errorf("declaring the user: %w", err)
	}
	if _, err := m.run(ctx, "systemd-sysusers", file); err != nil {
		return nil, errors.Join(fmt.Errorf("making user %s: %w", m.c.User, err), os.Remove(file))
	}
	return []string{"made user " + m.c.User}, nil
}

func (m *Manager) userPackaged() bool {
	return exists(m.path("/usr/lib/sysusers.d/"+m.c.Name+".conf")) ||
		exists(m.path("/usr/local/lib/sysusers.d/"+m.c.Name+".conf"))
}

// removeUser removes the user that makeUser made.
func (m *Manager) removeUser(ctx context.Context) error {
	file := m.sysusersFile()
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), m.marker()) {
		return nil //nolint:nilerr // none of Raven's
	}
	if _, err := m.run(ctx, "userdel", m.c.User); err != nil && !strings.Contains(err.Error(), "does not exist") {
		return fmt.Errorf("removing user %s: %w", m.c.User, err)
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("removing user %s: %w", m.c.User, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
