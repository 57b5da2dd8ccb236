// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// confined is testConfig in a sandbox, which is said once.
func confined(t *testing.T, mode string) Config {
	t.Helper()
	sandbox, err := NewSandbox(Policy{Mode: SandboxAuto})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sandbox.Measures() {
		t.Logf("%s: %t: %s", m.Name, m.Active, m.Detail)
	}
	config := testConfig(t, mode)
	config.Sandbox = sandbox
	return config
}

func TestConfinedDriverDoesItsWork(t *testing.T) {
	p := launch(t, confined(t, "plain"))
	if text, err := ask(t, p, "large", strings.Repeat("x", 1<<20)); err != nil || len(text) != 1<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	status, err := os.ReadFile(filepath.Join("/proc", pidText(p), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2",
	} {
		if os.Geteuid() != 0 && strings.HasPrefix(want, "CapBnd") {
			continue
		}
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	if score, err := os.ReadFile(filepath.Join("/proc", pidText(p), "oom_score_adj")); err != nil ||
		len(score) < len("500\n") {
		t.Errorf("it is ended no sooner than its core where memory is short: %s, %v", score, err)
	}
	if prio, err := syscall.Getpriority(syscall.PRIO_PROCESS, p.Status().PID); err != nil || 20-prio < 5 {
		t.Errorf("nice %d, %v", 20-prio, err)
	}
	if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another life", func() bool { return p.Status().Restarts == 1 && p.Status().State == Ready })
	if _, err := ask(t, p, "fine", ""); err != nil {
		t.Error(err)
	}
}

func BenchmarkStart(b *testing.B) {
	for name, mode := range map[string]Mode{"plain": SandboxOff, "confined": SandboxAuto} {
		b.Run(name, func(b *testing.B) {
			sandbox, err := NewSandbox(Policy{Mode: mode})
			if err != nil {
				b.Fatal(err)
			}
			config := testConfig(b, "plain")
			config.Sandbox = sandbox
			for b.Loop() {
				p, err := Launch(b.Context(), config)
				if err != nil {
					b.Fatal(err)
				}
				if err := p.Stop(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A script is run by its interpreter, and may execute what is below /usr; what is elsewhere has to be allowed.
func TestConfinedScript(t *testing.T) {
	config := confined(t, "plain")
	path := filepath.Join(t.TempDir(), "raven-driver-script")
	text := "#!/bin/sh\nexec " + config.Path + " driver:plain\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	own := config.Path
	config.Path, config.Args = path, nil
	for _, m := range config.Sandbox.Measures() {
		if m.Name == "landlock" && m.Active {
			if p, err := Launch(t.Context(), config); err == nil {
				t.Error("it executed what was not allowed")
				_ = p.Stop(t.Context())
			} else if !strings.Contains(err.Error(), "ermission denied") {
				t.Error(err)
			}
		}
	}
	config.AllowRead = []string{own}
	if os.Geteuid() == 0 {
		sandbox, err := NewSandbox(Policy{Mode: SandboxAuto, User: "0"}) // what go test built, another user could not reach
		if err != nil {
			t.Fatal(err)
		}
		config.Sandbox = sandbox
	}
	if _, err := ask(t, launch(t, config), "fine", ""); err != nil {
		t.Error(err)
	}
}

// A root's Raven runs no driver as root where confinement is required.
func TestRequiredIsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run drivers as another user")
	}
	if _, err := NewSandbox(Policy{Mode: SandboxRequired, User: "0"}); err == nil ||
		!strings.Contains(err.Error(), "another user") {
		t.Errorf("drivers that are root: %v", err)
	}
	sandbox, err := NewSandbox(Policy{Mode: SandboxRequired})
	if err != nil {
		t.Skipf("this machine does not have what is required: %v", err)
	}
	config := testConfig(t, "plain")
	config.Sandbox = sandbox
	path := filepath.Join(t.TempDir(), "raven-driver-script") // which its own user cannot reach
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec "+config.Path+" driver:plain\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	config.AllowRead, config.Path, config.Args = []string{config.Path}, path, nil
	p, err := Launch(t.Context(), config)
	if err == nil {
		_ = p.Stop(t.Context())
		t.Fatal("it runs as root")
	}
	if !strings.Contains(err.Error(), "a user of its own") {
		t.Error(err)
	}
}

// What a driver's environment has is what docs/plugin-protocol.md says.
func TestEnvironmentIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/plugin-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	// the race detector takes terabytes of addresses
	sandbox, err := NewSandbox(Policy{Mode: SandboxAuto, Memory: 1 << 46})
	if err != nil {
		t.Fatal(err)
	}
	config := testConfig(t, "plain")
	config.Sandbox = sandbox
	text, err := ask(t, launch(t, config), "environ", "")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "=")
		if set := strings.HasPrefix(line, name+"="); set && strings.ToUpper(name) == name &&
			!strings.ContainsAny(name, "+/ -") && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s is not on the page", name)
		}
	}
}
