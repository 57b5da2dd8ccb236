// SPDX-License-Identifier: Apache-2.0

package backdoor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kuryr/raven/service/backdoor"
	"github.com/kuryr/raven/service/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open starts a backdoor on a path, and stops it with the test.
func open(t *testing.T, path string, show func(io.Writer) error) *backdoor.Server {
	t.Helper()
	s := backdoor.New(backdoor.Config{Path: path, Show: show, Logger: quiet()})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Stop(context.WithoutCancel(t.Context()), true), s.Wait()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, path, what string) (int, string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://backdoor"+what, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	values, _, err := config.Load(config.Sources{
		Environ: []string{"OS_DEFAULT__PASSWORD=hush", "OS_DEFAULT__BACKDOOR_SOCKET=" + path},
	},
		append(backdoor.Options(), config.Option{Name: "password", Secret: true}))
	if err != nil {
		t.Fatal(err)
	}
	open(t, backdoor.FromConfig(values).Path, values.Show)
	for what, want := range map[string]string{
		"/": "/goroutines", "/config": "password = ****", "/goroutines": "backdoor_test.TestServes", "/debug/pprof/": "heap",
		"/debug/pprof/heap?debug=1": "heap profile", "/debug/pprof/goroutine?debug=2": "TestServes",
		"/debug/pprof/symbol": "num_symbols",
	} {
		status, body := get(t, path, what)
		if status != http.StatusOK || !strings.Contains(body, want) || strings.Contains(body, "hush") {
			t.Errorf("%s: %d, without %q or with the secret:\n%.500s", what, status, want, body)
		}
	}
	if status, _ := get(t, path, "/other"); status != http.StatusNotFound {
		t.Errorf("/other: %d", status)
	}
}

func TestOnlyItsUserMayConnect(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "b")
	s := open(t, path, nil)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := s.Stop(t.Context(), true); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

func TestOffByDefault(t *testing.T) {
	values, _, err := config.Load(config.Sources{}, backdoor.Options())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	s := open(t, backdoor.FromConfig(values).Path, nil)
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("what is there: %v, %v", left, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }()
	if len(ended) > 0 {
		t.Error("a backdoor that is off has ended before it was stopped")
	}
	if err := errors.Join(s.Stop(t.Context(), true), <-ended); err != nil {
		t.Error(err)
	}
}

func TestNumberOfTheProcess(t *testing.T) {
	values, _, err := config.Load(config.Sources{Environ: []string{"OS_DEFAULT__BACKDOOR_SOCKET=/run/raven/{pid}.sock"}},
		backdoor.Options())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := backdoor.FromConfig(values).Path, "/run/raven/"+strconv.Itoa(os.Getpid())+".sock"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPlaces(t *testing.T) {
	folder := t.TempDir()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder, "stale"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, filepath.Join(folder, "taken"), nil)
	for name, want := range map[string]string{
		"stale": "", "taken": "is in use by another program", "file": "is no socket",
		"missing/b":              "no such file or directory",
		strings.Repeat("x", 200): "is longer than 107 bytes",
	} {
		t.Run(want, func(t *testing.T) {
			s := backdoor.New(backdoor.Config{Path: filepath.Join(folder, name), Logger: quiet()})
			err := s.Start(t.Context())
			if want == "" {
				if err != nil {
					t.Error(err)
				}
				if err := s.Stop(t.Context(), false); err != nil {
					t.Error(err)
				}
				return
			}
			problem, ok := errors.AsType[*config.Error](err)
			if !ok || problem.Option != "backdoor_socket" || !strings.Contains(problem.Message, want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
	if left, err := filepath.Glob(filepath.Join(folder, ".backdoor*")); err != nil || len(left) != 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}
