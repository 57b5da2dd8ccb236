// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	kardianos "github.com/kardianos/service"
)

// Start starts the service and returns when it is ready; one that runs stays as it is.
func (m *Manager) Start(ctx context.Context) error {
	return m.act(ctx, "starting", func() error { return m.control.Start() })
}

// Stop stops the service and returns when it has ended.
func (m *Manager) Stop(ctx context.Context) error {
	return m.act(ctx, "stopping", func() error { return m.control.Stop() })
}

// Restart stops the service, if it runs, and starts it.
func (m *Manager) Restart(ctx context.Context) error {
	return m.act(ctx, "starting", func() error { return m.control.Restart() })
}

func (m *Manager) act(ctx context.Context, doing string, do func() error) error {
	if err := m.privileged(); err != nil {
		return err
	}
	if err := m.installed(); err != nil {
		return err
	}
	err := do()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s the service: %w", doing, err)
	if st, serr := m.Status(ctx); serr == nil {
		err = fmt.Errorf("%w; it is %s", err, st)
	}
	return fmt.Errorf("%w; %q says why", err, m.c.Name+" service logs")
}

func (m *Manager) installed() error {
	if m.Systemd() {
		whose, _, err := m.unitFile()
		if err == nil && whose == absent {
			err = ErrNotInstalled
		}
		return err
	}
	if _, err := m.control.Status(); errors.Is(err, kardianos.ErrNotInstalled) {
		return ErrNotInstalled
	}
	return nil
}

// Status is how the service is.
type Status struct {
	Platform string `json:"platform"`
	// State is running, stopped, starting, reloading, stopping or failed.
	State string `json:"state"`
	// Detail is what the service says of itself, or why it ended.
	Detail   string `json:"detail,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Since    string `json:"since,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	Enabled  bool   `json:"enabled"`
	Unit     string `json:"unit,omitempty"`
}

// Running says whether it works, or is about to.
func (s Status) Running() bool { return s.State != "stopped" && s.State != "failed" }

// String is the status in one line.
func (s Status) String() string {
	text := s.State
	if s.PID != 0 {
		text += fmt.Sprintf(" (process %d since %s)", s.PID, s.Since)
	}
	if s.Restarts > 0 {
		text += fmt.Sprintf(", restarted %d times", s.Restarts)
	}
	if s.Detail != "" {
		text += ": " + s.Detail
	}
	return text
}

// Status asks the service manager; ErrNotInstalled where there is no such service. It needs no privileges.
func (m *Manager) Status(ctx context.Context) (Status, error) {
	if err := m.installed(); err != nil {
		return Status{}, err
	}
	if !m.Systemd() {
		return m.statusElsewhere()
	}
	text, err := m.run(ctx, "systemctl", "show", m.c.Name, "--property="+strings.Join([]string{
		"ActiveState", "SubState", "StatusText", "Result", "ExecMainStatus", "MainPID", "ExecMainStartTimestamp", "NRestarts",
		"UnitFileState", "FragmentPath",
	}, ","))
	if err != nil {
		return Status{}, err
	}
	return parseStatus(text), nil
}

// parseStatus reads what systemctl show prints.
func parseStatus(text string) Status {
	p := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		p[key] = value
	}
	s := Status{
		Platform: systemd, Detail: p["StatusText"], Since: p["ExecMainStartTimestamp"], Unit: p["FragmentPath"],
		Enabled: strings.HasPrefix(p["UnitFileState"], "enabled"),
	}
	s.PID, _ = strconv.Atoi(p["MainPID"])
	s.Restarts, _ = strconv.Atoi(p["NRestarts"])
	switch active := p["ActiveState"]; active {
	case "active":
		s.State = "running"
	case "inactive":
		s.State, s.Detail = "stopped", ""
	case "activating":
		s.State = "starting"
		if p["SubState"] == "auto-restart" {
			s.Detail = ended(p) + ", waiting for the next try"
		}
	case "deactivating":
		s.State = "stopping"
	case "failed":
		s.State, s.Detail = "failed", ended(p)
	default:
		s.State = active
	}
	return s
}

// ended says how the last process ended.
func ended(p map[string]string) string {
	if p["Result"] == "exit-code" {
		return "it ended with exit status " + p["ExecMainStatus"]
	}
	return "it ended: " + p["Result"]
}

func (m *Manager) statusElsewhere() (Status, error) {
	s := Status{Platform: m.platform, Enabled: true}
	status, err := m.control.Status()
	switch {
	case err != nil:
		return s, fmt.Errorf("asking %s: %w", m.platform, err)
	case status == kardianos.StatusRunning:
		s.State = "running"
	case status == kardianos.StatusStopped:
		s.State = "stopped"
	default:
		s.State = "unknown"
	}
	return s, nil
}

// LogOptions choose what Logs shows.
type LogOptions struct {
	Lines  int    // the last ones; 0 is all
	Follow bool   // go on until ctx ends
	Since  string // as journalctl --since takes it; "" is no bound
}

// Logs shows what the service has written.
func (m *Manager) Logs(ctx context.Context, o LogOptions) error {
	name, args := "journalctl", []string{"--unit=" + m.c.Name, "--no-pager", "--output=short-iso"}
	if o.Since != "" {
		args = append(args, "--since="+o.Since)
	}
	if !m.Systemd() {
		if o.Since != "" {
			return fmt.Errorf("%s keeps no times: --since is for systemd", m.platform)
		}
		name, args = "tail", []string{}
	}
	switch {
	case o.Lines > 0:
		args = append(args, "--lines="+strconv.Itoa(o.Lines))
	case !m.Systemd():
		args = append(args, "--lines=+1")
	default:
		args = append(args, "--lines=all")
	}
	if o.Follow {
		args = append(args, "--follow")
	}
	if !m.Systemd() {
		for _, suffix := range []string{".log", ".err"} {
			if path := m.path("/var/log/" + m.c.Name + suffix); exists(path) {
				args = append(args, path)
			}
		}
	}
	err := m.stream(ctx, name, args...)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // following ends that way
	}
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no %s on this machine", name)
	}
	if err != nil {
		return fmt.Errorf("showing the log by %s: %w", name, err)
	}
	return nil
}
