// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kuryr/raven/service/host"
)

// TestAttacks orders every attack, with a user of the driver's own and with that of its core, and wants it refused.
// What this machine lacks is printed, and what rests on it alone is left out.
func TestAttacks(t *testing.T) {
	same := strconv.Itoa(os.Geteuid())
	users := map[string]string{"the core's user": same}
	if os.Geteuid() == 0 {
		users["a user of its own"] = ""
	}
	for name, user := range users {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OS_PASSWORD", "hunter2")
			w := newWorld(t)
			c := config(t, user, io.Discard)
			for _, m := range c.Sandbox.Measures() {
				t.Logf("%-18s %-5t %s", m.Name, m.Active, m.Detail)
			}
			p := launch(t, c)
			pid := p.Status().PID
			attack(t, p, c.Sandbox, w)
			if now := p.Status(); now.PID != pid || now.Restarts != 0 {
				t.Errorf("the driver was to live on: %+v", now)
			}
		})
	}
}

// TestAttacksOfAnOrdinaryUser is TestAttacks for a Raven that is not root, and has drivers of its own user: what
// privileges are checked for is then kept from them by confinement alone.
func TestAttacksOfAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("TestAttacks runs as an ordinary user already")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ordinary := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^TestAttacks$")
	ordinary.Dir, ordinary.Env = "/", append(os.Environ(), builtAt+"="+path, "HOME=/")
	ordinary.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 60599, Gid: 60599}}
	out, err := ordinary.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestAttacks/the_core's_user") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func attack(t *testing.T, p *host.Plugin, s *host.Sandbox, w world) {
	t.Helper()
	const landlock, seccomp, other, limits, always = "landlock", "seccomp", "another user", "limits", ""
	for _, a := range []struct {
		name, on string
		by       []string // any of these refuses it; always: the core itself does
	}{
		{"read", w.secret, []string{landlock, other}},
		{"read", "/etc/passwd", []string{landlock}},
		{"list", filepath.Dir(w.secret), []string{landlock}},
		{"list", "/", []string{landlock}},
		{"list", "/root", []string{landlock, other}},
		{"write", w.secret, []string{landlock, other}},
		{"write", "/tmp/hostile-was-here", []string{landlock}},
		{"remove", w.socket, []string{landlock, other}},
		{"fill", "", []string{limits}},
		{"core", "environ", []string{always}},
		{"core", "mem", []string{always}},
		{"core", "maps", []string{always}},
		{"core", "cwd/kuryr.conf", []string{always}},
		{"core-files", "", []string{always}},
		{"trace", "", []string{always}},
		{"peek", "", []string{always}},
		{"signal", "", []string{seccomp, other}},
		{"signal-all", "", []string{seccomp}},
		{"connect", w.socket, []string{seccomp}},
		{"connect", "@hostile", []string{seccomp}},
		{"connect-tcp", w.address, []string{seccomp, landlock}},
		{"connect-udp", "127.0.0.1:53", []string{seccomp}},
		{"datagram", w.inbox, []string{seccomp}},
		{"datagram-pair", w.inbox, []string{seccomp}},
		{"file-owner", "F_SETOWN", []string{seccomp}},
		{"file-owner", "F_SETOWN_EX", []string{seccomp}},
		{"file-owner", "F_SETSIG", []string{seccomp}},
		{"file-owner", "FIOSETOWN", []string{seccomp}},
		{"file-owner", "SIOCSPGRP", []string{seccomp}},
		{"renice", "", []string{seccomp, other}},
		{"affinity", "", []string{seccomp, other}},
		{"idle", "", []string{seccomp, other}},
		{"idle", "scheduler", []string{seccomp, other}},
		{"listen-tcp", "", []string{seccomp, landlock}},
		{"raw", "", []string{always}}, // no capabilities
		{"start", "", []string{seccomp}},
		{"fork", "", []string{seccomp}},
		{"leave-group", "", []string{seccomp}},
		{"leave-session", "", []string{seccomp}},
		{"outlive", "", []string{seccomp}},
		{"become-root", "", []string{seccomp, other}},
		{"unshare", "", []string{seccomp}},
		{"mount", "", []string{always}},
		{"descriptors", "", []string{limits}},
		{"shared-memory", "anonymous", []string{seccomp}},
		{"shared-memory", "downwards", []string{seccomp}},
		{"shared-memory", "zero", []string{landlock}},
	} {
		if !slices.ContainsFunc(a.by, func(by string) bool { return by == always || active(s, by) }) {
			if os.Getenv(wantAll) != "" {
				t.Errorf("this machine lacks %v, and $%s wants that %s %s is tried", a.by, wantAll, a.name, a.on)
			}
			t.Logf("not tried, for this machine lacks %v: %s %s", a.by, a.name, a.on)
			continue
		}
		text, err := order(t, p, a.name, a.on)
		if err != nil {
			t.Errorf("%s %s: %v", a.name, a.on, err)
		} else if !strings.HasPrefix(text, "refused: ") {
			t.Errorf("%s %s: %s", a.name, a.on, text)
		}
	}
	text, err := order(t, p, "environment", "")
	if err != nil || !strings.HasPrefix(text, "got ") || strings.Contains(text, "hunter2") {
		t.Errorf("environment: %s, %v", text, err)
	}
}

// TestAttacksSucceedOtherwise shows that the attacks are ones: without a sandbox they get what they want.
func TestAttacksSucceedOtherwise(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user than root is refused much anyway")
	}
	w := newWorld(t)
	c := config(t, "", io.Discard)
	c.Sandbox = nil
	p := launch(t, c)
	for _, a := range []struct{ name, on string }{
		{"read", w.secret},
		{"list", "/root"},
		{"write", filepath.Join(filepath.Dir(w.secret), "new")},
		{"fill", ""},
		{"core", "environ"},
		{"core", "maps"},
		{"core-files", ""},
		{"signal", ""},
		{"signal-all", ""},
		{"connect", w.socket},
		{"connect-tcp", w.address},
		{"connect-udp", "127.0.0.1:53"},
		{"listen-tcp", ""},
		{"raw", ""},
		{"peek", ""},
		{"datagram", w.inbox},
		{"datagram-pair", w.inbox},
		{"file-owner", "F_SETOWN"},
		{"file-owner", "F_SETOWN_EX"},
		{"file-owner", "F_SETSIG"},
		{"file-owner", "FIOSETOWN"},
		{"file-owner", "SIOCSPGRP"},
		{"affinity", ""},
		{"idle", ""},
		{"idle", "scheduler"},
		{"start", ""},
		{"fork", ""},
		{"leave-group", ""},
		{"outlive", ""},
		{"become-root", ""},
		{"unshare", ""},
		{"shared-memory", "anonymous"},
		{"shared-memory", "downwards"},
		{"shared-memory", "zero"},
		{"remove", w.socket},
	} {
		if text, err := order(t, p, a.name, a.on); err != nil || !strings.HasPrefix(text, "got ") {
			t.Errorf("%s %s: %s, %v", a.name, a.on, text, err)
		}
	}
}
