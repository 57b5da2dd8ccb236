// SPDX-License-Identifier: Apache-2.0

// Package system installs a program as a system service and speaks to the service manager: on systemd by a unit of
// one's own, elsewhere by what github.com/kardianos/service offers. It must never change what an administrator or a
// package has put there.
package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	kardianos "github.com/kardianos/service"
)

// Errors that callers may want to tell apart.
var (
	ErrPrivileges   = errors.New("this needs root: run it with sudo")
	ErrNoManager    = errors.New("no service manager runs here")
	ErrNotInstalled = errors.New("the service is not installed")
	ErrForeign      = errors.New("not installed by this command")
)

// Config is the service. Name, Executable and Unit are required.
type Config struct {
	Name, DisplayName, Description string
	// Executable is the program's absolute path, Arguments what it is started with. Files are further files that it has
	// to read.
	Executable string
	Arguments  []string
	Files      []string
	// Unit is the text of the systemd unit as packages install it. Program is what stands for Executable in its
	// ExecStart line.
	Unit, Program string
	// Sysusers declares User in the form of sysusers.d; it is made with the unit, and goes with it. Both may be empty.
	Sysusers, User string
	// Kept are the service's own folders, which go with it: of its state, its logs. Shared are those that go only if
	// they are empty.
	Kept, Shared []string
}

// Manager speaks to the service manager for one service.
type Manager struct {
	c        Config
	platform string // as kardianos names it
	control  control
	run      func(ctx context.Context, name string, args ...string) (string, error)
	stream   func(ctx context.Context, name string, args ...string) error
	root     string // "" or, in tests, the folder that stands for /
	euid     int
}

// control is what of kardianos' service is used.
type control interface { //nolint:interfacebloat // the verbs of a service manager
	Install() error
	Uninstall() error
	Start() error
	Stop() error
	Restart() error
	Status() (kardianos.Status, error)
}

const (
	systemd = "linux-systemd"
	sysv    = "unix-systemv"
)

// New finds the service manager. What Logs shows goes to stdout and stderr. Nothing is changed.
func New(c Config, stdout, stderr *os.File) (*Manager, error) {
	m := &Manager{c: c, platform: kardianos.Platform(), run: output, euid: os.Geteuid()}
	m.stream = func(ctx context.Context, name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the manager's own tools
		cmd.Stdout, cmd.Stderr = stdout, stderr
		return cmd.Run()
	}
	if err := m.detect(); err != nil {
		return nil, err
	}
	var err error
	m.control, err = kardianos.New(nil, &kardianos.Config{
		Name: c.Name, DisplayName: c.DisplayName, Description: c.Description, Executable: c.Executable,
		Arguments: c.Arguments,
		Option:    kardianos.KeyValue{"SystemdScript": m.unit(), "Restart": "on-failure"},
	})
	if err != nil {
		return nil, fmt.Errorf("finding the service manager: %w", err)
	}
	return m, nil
}

// detect refuses what is only taken for a service manager: kardianos takes System V for granted where it finds nothing
// else.
func (m *Manager) detect() error {
	if m.platform == systemd {
		if _, err := os.Stat(m.path("/run/systemd/system")); err == nil {
			return nil
		}
	}
	first, err := os.ReadFile(m.path("/proc/1/comm"))
	name := strings.TrimSpace(string(first))
	if m.platform != systemd && m.platform != "" && (m.platform != sysv || name == "init") {
		return nil
	}
	if err != nil || name == "" {
		name = "something else"
	}
	return fmt.Errorf("%w: process 1 is %s, not systemd; in a container let it run %q itself", ErrNoManager, name,
		strings.Join(append([]string{m.c.Program}, m.c.Arguments...), " "))
}

// Platform names the service manager, as linux-systemd.
func (m *Manager) Platform() string { return m.platform }

// Systemd says whether it is systemd.
func (m *Manager) Systemd() bool { return m.platform == systemd }

func (m *Manager) path(p string) string { return filepath.Join("/", m.root, p) }

func (m *Manager) privileged() error {
	if m.euid != 0 {
		return ErrPrivileges
	}
	return nil
}

// words are the program and its arguments as a unit has them.
func (m *Manager) words() []string {
	words := make([]string, 0, len(m.c.Arguments)+1)
	for _, word := range append([]string{m.c.Executable}, m.c.Arguments...) {
		words = append(words, quote(word))
	}
	return words
}

// unit is the unit with this program in it.
func (m *Manager) unit() string {
	words := m.words()
	var b strings.Builder
	b.WriteString(m.marker() + "\n")
	for line := range strings.Lines(m.c.Unit) {
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok && strings.HasPrefix(command, m.c.Program+" ") {
			line = "ExecStart=" + strings.Join(words, " ") + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// marker is how a unit of Raven's begins.
func (m *Manager) marker() string {
	return fmt.Sprintf("# Made by `%s service install`, and removed by `%s service uninstall`.", m.c.Name, m.c.Name)
}

// quote writes one word of a command line for systemd.
func quote(word string) string {
	word = strings.NewReplacer("%", "%%", "$", "$$").Replace(word)
	if !strings.ContainsAny(word, " \t\"'\\;") && word != "" {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// output runs a tool of the system, and returns what it prints; what it complains about is in the error.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the manager's own tools
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = errors.New(strings.ReplaceAll(text, "\n", "; "))
		}
		return stdout.String(), fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return stdout.String(), nil
}
