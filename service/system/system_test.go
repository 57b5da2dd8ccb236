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
	"testing"

	"github.com/google/go-cmp/cmp"
	kardianos "github.com/kardianos/service"
)

const testUnit = "[Service]\nUser=crow\nExecStart=/usr/bin/crow run\nExecReload=/bin/kill -HUP $MAINPID\n"

// rig is a manager whose machine is a folder. Its kardianos does to that folder what the real one does to /.
type rig struct {
	*Manager
	t     *testing.T
	calls []string
	fail  map[string]error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, fail: map[string]error{}}
	r.Manager = &Manager{
		c: Config{
			Name: "crow", Executable: "/opt/crow/crow", Arguments: []string{"run"}, Unit: testUnit, Program: "/usr/bin/crow",
			Sysusers: "u crow - - -\n", User: "crow", Kept: []string{"/var/lib/crow"},
		},
		platform: systemd, root: t.TempDir(), control: r,
		run: func(_ context.Context, name string, args ...string) (string, error) {
			return "", r.note(strings.Join(append([]string{name}, args...), " "))
		},
	}
	return r
}

func (r *rig) note(call string) error {
	call = strings.ReplaceAll(call, r.root, "")
	r.calls = append(r.calls, call)
	for part, err := range r.fail {
		if strings.Contains(call, part) {
			return err
		}
	}
	return nil
}

func (r *rig) unitPath() string { return r.path("/etc/systemd/system/crow.service") }

func (r *rig) Install() error {
	if _, err := os.Stat(r.unitPath()); err == nil {
		return errors.New("Init already exists")
	}
	r.write("/etc/systemd/system/crow.service", r.unit())
	return r.note("control.Install")
}

func (r *rig) Uninstall() error {
	return errors.Join(r.note("control.Uninstall"), os.Remove(r.unitPath()))
}
func (r *rig) Start() error                      { return r.note("control.Start") }
func (r *rig) Stop() error                       { return r.note("control.Stop") }
func (r *rig) Restart() error                    { return r.note("control.Restart") }
func (r *rig) Status() (kardianos.Status, error) { return kardianos.StatusRunning, nil }

// The embedded Manager has methods of the same names; these say which is meant.
func (r *rig) install() ([]string, error)   { return r.Manager.Install(r.t.Context()) }
func (r *rig) uninstall() ([]string, error) { return r.Manager.Uninstall(r.t.Context()) }

func (r *rig) write(path, text string) {
	r.t.Helper()
	path = r.path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// files lists what is below the root.
func (r *rig) files() []string {
	var list []string
	_ = filepath.WalkDir(r.root, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, r.root))
		}
		return nil
	})
	return list
}

func (r *rig) want(what string, got, want any) {
	r.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestInstallAndUninstall(t *testing.T) {
	r := newRig(t)
	if _, err := r.install(); err != nil {
		t.Fatal(err)
	}
	r.want("files", r.files(), []string{"/etc/systemd/system/crow.service", "/etc/sysusers.d/crow.conf"})
	r.want("calls", r.calls, []string{"systemd-sysusers /etc/sysusers.d/crow.conf", "control.Install"})

	r.calls = nil
	done, err := r.install()
	if err != nil || len(done) != 1 || !strings.Contains(done[0], "there already") {
		t.Errorf("again: %v, %v", done, err)
	}
	r.want("calls of the second time", r.calls, []string{"systemctl enable crow"})

	r.calls, r.c.Arguments = nil, []string{"run", "--config-file=/etc/my crow.conf"}
	if _, err := r.install(); err != nil {
		t.Fatal(err)
	}
	r.want("calls after a change", r.calls, []string{"control.Uninstall", "control.Install"})
	text, err := os.ReadFile(r.unitPath())
	if err != nil ||
		!strings.Contains(string(text), "\nExecStart=/opt/crow/crow run \"--config-file=/etc/my crow.conf\"\n") {
		t.Errorf("%v, the unit is:\n%s", err, text)
	}

	r.calls = nil
	r.write("/var/lib/crow/x", "")
	if _, err := r.uninstall(); err != nil {
		t.Fatal(err)
	}
	r.want("files left", r.files(), []string(nil))
	r.want("calls of uninstall", r.calls, []string{
		"control.Stop", "systemctl reset-failed crow", "control.Uninstall", "userdel crow",
	})
	if done, err := r.uninstall(); err != nil || done[0] != "it is not installed" {
		t.Errorf("again: %v, %v", done, err)
	}
}

func TestInstallLeavesNothingWhereItFails(t *testing.T) {
	for _, step := range []string{"systemd-sysusers", "control.Install"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t)
			r.fail[step] = errors.New("no")
			if _, err := r.install(); err == nil {
				t.Error("no error")
			}
			r.want("files left", r.files(), []string(nil))
		})
	}
}

func TestOthersUnits(t *testing.T) {
	t.Run("an administrator's stays", func(t *testing.T) {
		r := newRig(t)
		r.write("/etc/systemd/system/crow.service", testUnit)
		_, err := r.install()
		_, uerr := r.uninstall()
		if !errors.Is(err, ErrForeign) || !errors.Is(uerr, ErrForeign) || len(r.calls) > 0 {
			t.Errorf("install: %v; uninstall: %v; calls %v", err, uerr, r.calls)
		}
	})
	t.Run("a masked one stays", func(t *testing.T) {
		r := newRig(t)
		r.write("/etc/systemd/system/x", "")
		if err := os.Symlink("/dev/null", r.unitPath()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.install(); !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
	})
	t.Run("a package's is enabled and disabled", func(t *testing.T) {
		r := newRig(t)
		r.write("/usr/lib/systemd/system/crow.service", testUnit)
		_, err := r.install()
		_, uerr := r.uninstall()
		if err != nil || uerr != nil {
			t.Error(err, uerr)
		}
		r.want("calls", r.calls, []string{"systemctl enable crow", "systemctl disable --now crow"})
		// it would be dropped without a word
		for _, argument := range []string{"--config-file=/etc/x.conf", "--set=a.b=c", "--strict"} {
			r.c.Arguments = []string{"run", argument}
			if _, err := r.install(); err == nil || !strings.Contains(err.Error(), "systemctl edit crow") {
				t.Errorf("with %s: %v", argument, err)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Run("without privileges", func(t *testing.T) {
		r := newRig(t)
		r.euid = 1000
		ctx := t.Context()
		_, err := r.install()
		_, uerr := r.uninstall()
		for _, err := range []error{err, uerr, r.Manager.Start(ctx), r.Manager.Stop(ctx), r.Manager.Restart(ctx)} {
			if !errors.Is(err, ErrPrivileges) {
				t.Error(err)
			}
		}
		if len(r.calls)+len(r.files()) > 0 {
			t.Error(r.calls, r.files())
		}
	})
	t.Run("not installed", func(t *testing.T) {
		r := newRig(t)
		_, err := r.Manager.Status(t.Context())
		for _, err := range []error{err, r.Manager.Start(t.Context())} {
			if !errors.Is(err, ErrNotInstalled) {
				t.Error(err)
			}
		}
	})
	t.Run("a file that the unit hides", func(t *testing.T) {
		for _, file := range []string{"/home/1/kuryr.conf", "/root/kuryr.conf", "/tmp/kuryr.conf"} { // paths of nobody
			r := newRig(t)
			r.c.Files = []string{file}
			if _, err := r.install(); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: %v", file, err)
			}
		}
	})
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		platform, first string
		booted, good    bool
	}{
		{systemd, "systemd", true, true},
		{systemd, "systemd", false, false},
		{sysv, "init", false, true},
		{sysv, "raven", false, false},
		{"linux-openrc", "init", false, true},
		{"", "init", false, false},
	} {
		t.Run(fmt.Sprintf("%s %s %t", c.platform, c.first, c.booted), func(t *testing.T) {
			r := newRig(t)
			r.platform = c.platform
			r.write("/proc/1/comm", c.first+"\n")
			if c.booted {
				r.write("/run/systemd/system/x", "")
			}
			if err := r.detect(); (err == nil) != c.good || err != nil && !errors.Is(err, ErrNoManager) {
				t.Error(err)
			}
		})
	}
}

func TestParseStatus(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{
			"ActiveState=active\nMainPID=7\nExecMainStartTimestamp=Mon\nStatusText=objects: 6 done\n",
			"running (process 7 since Mon): objects: 6 done",
		},
		{"ActiveState=inactive\nMainPID=0\nStatusText=old\n", "stopped"},
		{"ActiveState=failed\nResult=exit-code\nExecMainStatus=1\nMainPID=0\n", "failed: it ended with exit status 1"},
		{
			"ActiveState=activating\nSubState=auto-restart\nResult=watchdog\nMainPID=0\nNRestarts=2\n",
			"starting, restarted 2 times: it ended: watchdog, waiting for the next try",
		},
		{
			"ActiveState=deactivating\nMainPID=9\nExecMainStartTimestamp=Tue\nStatusText=stopping raven\n",
			"stopping (process 9 since Tue): stopping raven",
		},
	} {
		if got := parseStatus(c.text).String(); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"run": "run", "--set=a.b=$x": "--set=a.b=$$x", "100%": "100%%", "a b": `"a b"`, `a"b`: `"a\"b"`, "": `""`,
	} {
		if got := quote(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
