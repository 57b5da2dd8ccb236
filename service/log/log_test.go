// SPDX-License-Identifier: Apache-2.0

package log_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, c log.Config) *log.Log {
	t.Helper()
	l, err := log.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // some tests close it themselves
	return l
}

type spec struct {
	Name     string
	Password string
	Nested   map[string]any
}

type valuer struct{ secret string }

func (v valuer) LogValue() slog.Value { return slog.StringValue("holds " + v.secret) }

type sayer struct{ text string }

func (s *sayer) String() string { return s.text }

func TestSecretsNever(t *testing.T) {
	const secret = `hush"hush$`
	password := errors.New("dial with " + secret)
	for _, asJSON := range []bool{false, true} {
		for name, write := range map[string]func(*slog.Logger){
			"message":         func(l *slog.Logger) { l.Info("it is " + secret) },
			"attribute":       func(l *slog.Logger) { l.Info("m", "text", "it is "+secret) },
			"attribute's key": func(l *slog.Logger) { l.Info("m", "admin_password", "unregistered") },
			"header":          func(l *slog.Logger) { l.Info("m", "X-Auth-Token", "unregistered") },
			"credential":      func(l *slog.Logger) { l.Info("m", "application_credential_secret", "unregistered") },
			"authorization":   func(l *slog.Logger) { l.Info("m", "Authorization", "unregistered") },
			"group": func(l *slog.Logger) {
				l.Info("m", slog.Group("a", slog.Group("b", "token", "unregistered", "x", secret)))
			},
			"secret group":      func(l *slog.Logger) { l.Info("m", slog.Group("secrets", "x", "unregistered")) },
			"open secret group": func(l *slog.Logger) { l.WithGroup("password").Info("m", "x", "unregistered") },
			"with":              func(l *slog.Logger) { l.With("token", "unregistered", "x", secret).WithGroup("g").Info("m") },
			"error":             func(l *slog.Logger) { l.Info("m", "error", fmt.Errorf("wrapped: %w", password)) },
			"quoted error":      func(l *slog.Logger) { l.Info("m", "error", fmt.Errorf("parsing %q", secret)) },
			"query":             func(l *slog.Logger) { l.Info("m", "url", "http://h/?x="+url.QueryEscape(secret)) },
			"stringer":          func(l *slog.Logger) { l.Info("m", "x", &sayer{secret}) },
			"valuer":            func(l *slog.Logger) { l.Info("m", "x", valuer{secret}) },
			"struct": func(l *slog.Logger) {
				l.Info("m", "x", spec{"n", "unregistered", map[string]any{"k": secret}})
			},
			"headers":        func(l *slog.Logger) { l.Info("m", "x", http.Header{"X-Subject-Token": {"unregistered"}}) },
			"list":           func(l *slog.Logger) { l.Info("m", "x", []any{map[string]any{"Secret": 1234567}}) },
			"url in text":    func(l *slog.Logger) { l.Info("m", "error", "Get http://user:unregistered@host/x: refused") },
			"header in text": func(l *slog.Logger) { l.Info("sent X-Auth-Token: unregistered to h") },
			"bearer in text": func(l *slog.Logger) { l.Info("sent Authorization: Bearer unregistered") },
			"json in text":   func(l *slog.Logger) { l.Info("m", "body", `{"auth":{"password": "unregistered"}}`) },
			"form in text":   func(l *slog.Logger) { l.Info("m", "body", `user=a&password=unregistered&x=y`) },
		} {
			t.Run(fmt.Sprintf("%s/json=%v", name, asJSON), func(t *testing.T) {
				var out bytes.Buffer
				l := open(t, log.Config{Stderr: &out, JSON: asJSON})
				l.Redactor().Add(secret)
				write(l.Logger())
				for _, hidden := range []string{"hush", "unregistered", "1234567"} {
					if strings.Contains(out.String(), hidden) {
						t.Errorf("shows it: %s", out.String())
					}
				}
				if !strings.Contains(out.String(), log.Mask) {
					t.Errorf("hides nothing: %s", out.String())
				}
			})
		}
	}
}

func TestWhatIsNoSecretStays(t *testing.T) {
	var out bytes.Buffer
	l := open(t, log.Config{Stderr: &out})
	l.Redactor().Add("abc") // too short to search for
	l.Logger().Info("abcdef: invalid token: expired",
		"token_file", "/run/token", "application_credential_id", "id1", "has_token", true, "count", 3, "error", nil,
		"url", "https://h:5000/v3", "nothing", (*sayer)(nil), "labels", map[string]string{"app": "web"})
	_, line, _ := strings.Cut(out.String(), " INFO  ")
	want := "abcdef: invalid token: expired token_file=/run/token application_credential_id=id1 has_token=true " +
		"count=3 error=<nil> url=https://h:5000/v3 nothing=\"*log_test.sayer(panic: runtime error: invalid memory " +
		"address or nil pointer dereference)\" labels=map[app:web]\n"
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRotatedTokensAreHiddenLongestFirst(t *testing.T) {
	r := log.NewRedactor()
	r.Add("abcd", "abcdefgh")
	if got := r.Text("x abcdefgh abcd"); got != "x **** ****" {
		t.Errorf("got %q", got)
	}
}

func TestTextFormat(t *testing.T) {
	var out bytes.Buffer
	l := open(t, log.Config{Stderr: &out, Level: slog.LevelWarn})
	l.Logger().Info("not shown")
	//nolint:sloglint // mixed on purpose: everything that slog allows
	l.Logger().With("a", "x y").WithGroup("g").With("b", "").WithGroup("h").Warn("two\nlines \x1b[31m",
		slog.Group("i", "c", `"`), "d", time.Second,
		slog.Attr{})
	l.Logger().Error("it broke", "stack", "goroutine 1\nmain.main()\n", "service", "s")
	lines := strings.SplitAfter(out.String(), "\n")
	want := []string{
		`WARN  two\nlines \x1b[31m a="x y" g.b="" g.h.i.c="\"" g.h.d=1s` + "\n",
		"ERROR it broke service=s\n",
	}
	for i, w := range want {
		if _, err := time.Parse("2006-01-02 15:04:05.000", lines[i][:23]); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(w, lines[i][24:]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff("    goroutine 1\n    main.main()\n", strings.Join(lines[2:], "")); diff != "" {
		t.Errorf("the stack (-want +got):\n%s", diff)
	}
	l.SetLevel(slog.LevelDebug)
	out.Reset()
	l.Logger().Debug("shown now")
	if !strings.Contains(out.String(), "DEBUG shown now") {
		t.Errorf("got %s", out.String())
	}
}

func TestColor(t *testing.T) {
	var out bytes.Buffer
	open(t, log.Config{Stderr: &out, Color: true}).Logger().Error("m")
	if !strings.Contains(out.String(), "\x1b[31mERROR\x1b[0m m") {
		t.Errorf("got %q", out.String())
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if log.Terminal(file, func(string) string { return "" }) {
		t.Error("a file is no terminal")
	}
}

func fromFile(t *testing.T, text string) log.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kuryr.conf")
	if err := os.WriteFile(path, []byte("[DEFAULT]\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	values, _, err := config.Load(config.Sources{Files: []string{path}}, log.Options())
	if err != nil {
		t.Fatal(err)
	}
	return log.FromConfig(values, "raven")
}

func TestFromConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		file  string
		level slog.Level
	}{
		"defaults":           {"", "", slog.LevelInfo},
		"debug":              {"debug = true\nlog_level = error", "", slog.LevelDebug},
		"level in any case":  {"log_level = warning", "", slog.LevelWarn},
		"critical":           {"log_level = CRITICAL", "", slog.LevelError},
		"file":               {"log_file = a.log", "a.log", slog.LevelInfo},
		"file in folder":     {"log_file = a.log\nlog_dir = /d", "/d/a.log", slog.LevelInfo},
		"absolute in folder": {"log_file = /x/a.log\nlog_dir = /d", "/x/a.log", slog.LevelInfo},
		"folder":             {"log_dir = /d", "/d/raven.log", slog.LevelInfo},
	} {
		t.Run(name, func(t *testing.T) {
			c := fromFile(t, tc.text)
			if c.File != tc.file || c.Level != tc.level {
				t.Errorf("got %q %v", c.File, c.Level)
			}
		})
	}
}

func TestABadPathIsClear(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing", "raven.log")
	_, err := log.New(fromFile(t, "debug = true\nlog_file = "+missing), nil)
	typed, ok := errors.AsType[*config.Error](err)
	if !ok || typed.Line != 3 || typed.Option != "log_file" || !strings.HasSuffix(err.Error(),
		`kuryr.conf:3: [DEFAULT] log_file: opening the log file "`+missing+`": no such file or directory`) {
		t.Errorf("got %v", err)
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raven.log")
	l := open(t, log.Config{File: path, JSON: true, Color: true})
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				l.Logger().Info("line")
			}
		})
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	l.Logger().Info("after")
	lines := 0
	for _, p := range []string{path, path + ".1"} {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			lines++
			if !json.Valid([]byte(line)) {
				t.Errorf("torn line %q", line)
			}
		}
		if p == path && !strings.Contains(string(data), `"msg":"after"`) {
			t.Error("still writes to the old file")
		}
	}
	if lines != 401 {
		t.Errorf("%d lines, want 401", lines)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := l.Reset(t.Context()); err == nil {
		t.Error("no error for a folder that is gone")
	}
	l.Logger().Info("the old file is still in use")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

type syslogFake struct {
	lines  []string
	closed bool
}

func (s *syslogFake) say(severity, line string) error {
	s.lines = append(s.lines, severity+" "+line)
	return nil
}
func (s *syslogFake) Debug(m string) error   { return s.say("debug", m) }
func (s *syslogFake) Info(m string) error    { return s.say("info", m) }
func (s *syslogFake) Warning(m string) error { return s.say("warning", m) }
func (s *syslogFake) Err(m string) error     { return s.say("err", m) }
func (s *syslogFake) Close() error           { s.closed = true; return nil }

// TestFileThatTakesNothing: what a file on a full disk does not take goes to standard error, with the reason once.
func TestFileThatTakesNothing(t *testing.T) {
	var stderr bytes.Buffer
	l := open(t, log.Config{File: "/dev/full", Stderr: &stderr, Level: slog.LevelInfo})
	l.Logger().Info("first")
	l.Logger().Info("second")
	said := stderr.String()
	for what, times := range map[string]int{"first": 1, "second": 1, `"/dev/full"`: 1, "no space left": 1} {
		if n := strings.Count(said, what); n != times {
			t.Errorf("%q is said %d times instead of %d in:\n%s", what, n, times, said)
		}
	}
}

// TestFileThatIsReopenedAfterItWasRefused takes the lines again; what the new one does not take is told again.
func TestFileThatIsReopenedAfterItWasRefused(t *testing.T) {
	var stderr bytes.Buffer
	path, dir := filepath.Join(t.TempDir(), "raven.log"), t.TempDir()
	link := func(target string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(path), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	link("/dev/full")
	l := open(t, log.Config{File: path, Stderr: &stderr, Level: slog.LevelInfo})
	reopen := func(target string) {
		t.Helper()
		link(target)
		if err := l.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.Logger().Info("first")
	reopen("/dev/full")
	l.Logger().Info("second")
	reopen(filepath.Join(dir, "good"))
	l.Logger().Info("third")
	said := stderr.String()
	for what, times := range map[string]int{"first": 1, "second": 1, "third": 0, "no space left": 2} {
		if n := strings.Count(said, what); n != times {
			t.Errorf("%q is said %d times instead of %d in:\n%s", what, n, times, said)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "good")); err != nil || strings.Count(string(text), "third") != 1 {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func TestSyslogAndFile(t *testing.T) {
	fake := &syslogFake{}
	path := filepath.Join(t.TempDir(), "raven.log")
	l := open(t, log.Config{
		Syslog: true, File: path, Level: slog.LevelDebug,
		DialSyslog: func() (log.Syslog, error) { return fake, nil },
	})
	logger := l.Logger().With("k", "v").WithGroup("g")
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		logger.Log(t.Context(), level, "m", "token", "unregistered")
	}
	want := []string{
		"debug m k=v g.token=****\n", "info m k=v g.token=****\n", "warning m k=v g.token=****\n", "err m k=v g.token=****\n",
	}
	if diff := cmp.Diff(want, fake.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	data, err := os.ReadFile(path)
	if err != nil || strings.Count(string(data), " m k=v g.token=****") != 4 {
		t.Errorf("%v: %s", err, data)
	}
	if err := l.Close(); err != nil || !fake.closed {
		t.Error("syslog stays open")
	}
	_, err = log.New(log.Config{
		Syslog: true, DialSyslog: func() (log.Syslog, error) { return nil, errors.New("no daemon") },
	}, nil)
	if err == nil || err.Error() != "[DEFAULT] use_syslog: opening the local syslog: no daemon" {
		t.Errorf("got %v", err)
	}
}

func TestDisabledLevelsCostNothing(t *testing.T) {
	l := open(t, log.Config{Stderr: &bytes.Buffer{}})
	if l.Logger().Enabled(context.Background(), slog.LevelDebug) {
		t.Error("debug is enabled")
	}
}
