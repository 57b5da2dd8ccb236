// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
)

func TestDigest(t *testing.T) {
	config := testConfig(t, "plain")
	data, err := os.ReadFile(config.Path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	config.SHA256 = hex.EncodeToString(sum[:])
	p := launch(t, config)
	if err := syscall.Kill(p.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a second start with a digest", func() bool {
		return p.Status().Restarts == 1 && p.Status().State == Ready
	})
	config.SHA256 = strings.Repeat("0", 64)
	if _, err := Launch(t.Context(), config); err == nil || !strings.Contains(err.Error(), "sha256") {
		t.Errorf("got %v", err)
	}
}

// A driver that speaks several protocol versions takes the highest that both speak.
func TestVersionIsNegotiated(t *testing.T) {
	p := launch(t, testConfig(t, "ofthefuture"))
	if _, err := ask(t, p, "fine", ""); err != nil {
		t.Error(err)
	}
}

func TestFirstStartErrors(t *testing.T) {
	folder := t.TempDir()
	plainFile := filepath.Join(folder, "file")
	if err := os.WriteFile(plainFile, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	noFormat := filepath.Join(folder, "noformat")
	if err := os.WriteFile(noFormat, []byte("text"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mode   string
		change func(*Config)
		want   []string
	}{
		"missing":        {"plain", func(c *Config) { c.Path = "/nowhere/x" }, []string{"not found", "/nowhere/x"}},
		"folder":         {"plain", func(c *Config) { c.Path = folder }, []string{"folder"}},
		"not executable": {"plain", func(c *Config) { c.Path = plainFile }, []string{"is not executable", "-rw-------"}},
		"no program":     {"plain", func(c *Config) { c.Path = noFormat }, []string{"exec format error"}},
		"other version":  {"otherversion", nil, []string{"protocol 9", "speaks 1"}},
		"net/rpc":        {"netrpc", nil, []string{"gRPC"}},
		"other cookie":   {"cookie", nil, []string{"plugin of another program", "RAVEN_PLUGIN"}},
		"exits":          {"fails", nil, []string{"status 3", "no database today"}},
		"not a driver":   {"succeeds", nil, []string{"not a Raven driver"}},
		"no handshake":   {"silent", func(c *Config) { c.Timeouts.Start = 300 * time.Millisecond }, []string{"within 300ms"}},
		"other name":     {"plain", func(c *Config) { c.Name = "else" }, []string{`"subject"`}},
		"bad values": {
			"plain", func(c *Config) { c.Values = drivers.Values{"g": {"bad": "x"}} },
			[]string{"[g] bad: is not wanted; nor is that"},
		},
		"long folder": {
			"plain", func(c *Config) { c.RuntimeDir = filepath.Join(folder, strings.Repeat("x", 90)) }, []string{"too long"},
		},
		"wrong digest": {"plain", func(c *Config) { c.SHA256 = "00" }, []string{"sha256"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := testConfig(t, c.mode)
			if c.change != nil {
				c.change(&config)
			}
			p, err := Launch(t.Context(), config)
			if err == nil {
				_ = p.Stop(t.Context())
				t.Fatal("want an error")
			}
			t.Log(err)
			if !strings.HasPrefix(err.Error(), "driver("+config.Name+"): ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q does not name the driver in one line", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestCancelledLaunch(t *testing.T) {
	config := testConfig(t, "silent")
	config.Timeouts.Start = time.Hour // so that only the context ends it while the test runs
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Launch(ctx, config); err == nil {
		t.Error("a driver that says nothing has started")
	}
	cancel() // with a context that has ended nothing is executed
	if _, err := Launch(ctx, config); err == nil {
		t.Error("a driver has started with a context that has ended")
	}
}

func TestDiscover(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write := func(folder, name string, mode os.FileMode) string {
		path := filepath.Join(folder, executablePrefix+name)
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	both := write(first, "both", 0o700)
	write(second, "both", 0o700)
	only := write(second, "only", 0o700)
	write(first, "plain", 0o600)
	for name, c := range map[string]struct{ path, problem string }{
		"both":   {both, ""},
		"only":   {only, ""},
		"plain":  {"", "not executable"},
		"none":   {"", first + " or " + second + ", where the drivers both, only, plain are"},
		"../x":   {"", "lower case"},
		"":       {"", "lower case"},
		"a/b":    {"", "lower case"},
		"Upper":  {"", "lower case"},
		"a.b":    {"", "lower case"},
		"-start": {"", "lower case"},
	} {
		path, err := discover(name, []string{first, second})
		if path != c.path || (err == nil) != (c.problem == "") || (err != nil && !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%q: %q, %v", name, path, err)
		}
	}
	if _, err := Discover("none", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestInspect(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "raven-driver-script")
	text := "#!/bin/sh\nexec " + own + " driver:plain\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := Inspect(t.Context(), script)
	if err != nil || info.Name != "subject" {
		t.Errorf("%v, %v", info, err)
	}
}
