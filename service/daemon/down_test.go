package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/service/host"
	"github.com/kuryr/raven/service/reconcile"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// downRig is a cluster and a cloud, and a configuration that enables driver namespace and one, called hostile, whose program is what a test
// makes it.
func downRig(t *testing.T) (conf *config.Sources, from Loader, plugins string) {
	t.Helper()
	kube, cloud := simkube.New(simkube.Options{}), simcloud.New(simcloud.Options{})
	t.Cleanup(kube.Close)
	t.Cleanup(cloud.Close)
	if _, err := kube.Start(""); err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.Start(context.WithoutCancel(t.Context()), ""); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "down") //nolint:usetesting // short: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugins = filepath.Join(dir, "plugins")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", plugins+"/", "./plugins/raven-driver-namespace", "./test/drivers/raven-driver-hostile")
	build.Dir = "../.."
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := fmt.Sprintf(`[kubernetes]
kubeconfig = %[1]s/kubeconfig
[neutron]
cloud = %[2]s
clouds_file = %[1]s/clouds.yaml
[raven]
drivers = namespace,hostile
plugin_dir = %[3]s
runtime_dir = %[1]s/run
`, dir, simcloud.CloudMember, plugins)
	for name, content := range map[string]string{
		"kubeconfig": string(kube.Kubeconfig()), "clouds.yaml": string(cloud.CloudsYAML()), "kuryr.conf": text,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf = &config.Sources{Files: []string{filepath.Join(dir, "kuryr.conf")}}
	return conf, Loader{Sources: func() (config.Sources, error) { return *conf, nil }, Version: "test"}, plugins
}

// A driver that does not start keeps no other from its work, and is taken in when it starts.
func TestDriverThatDoesNotStartIsLeftOut(t *testing.T) {
	_, from, plugins := downRig(t)
	program := filepath.Join(plugins, ProgramPrefix+"hostile")
	good := program + ".good"
	if err := os.Rename(program, good); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no database today >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Load(t.Context()); !errors.Is(err, host.ErrNotStarted) || !strings.Contains(err.Error(), "no database today") {
		t.Fatalf("commands that need every driver: %v", err)
	}
	l, err := from.loadDespite(t.Context(), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	r, err := prepare(t.Context(), l, slog.New(slog.DiscardHandler), false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer r.stop(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	if err := r.watchers(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- r.run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for deadline := time.Now().Add(time.Minute); r.engine().Counts()[reconcile.Done] == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("driver namespace does nothing: %v", r.engine().Counts())
		}
	}
	registry := health.NewRegistry(clock.RealClock{})
	component := registry.Component("driver hostile")
	r.readiness(map[string]*health.Component{"namespace": registry.Component("driver namespace"), "hostile": component})
	for _, report := range registry.Reports() {
		if report.Name == "driver hostile" && (report.State != health.Degraded || !strings.Contains(report.Reason, "no database today")) {
			t.Errorf("it is reported as %+v", report)
		}
	}
	for _, report := range r.driverReports() {
		if report.Name == "hostile" && (report.State != string(host.Quarantined) || !strings.Contains(report.Problem, "no database today")) {
			t.Errorf("raven status has %+v", report)
		}
	}

	signals := make(chan os.Signal, 1)
	d := &Daemon{config: Config{Signals: signals}, log: r.log, loaded: l, runtime: r}
	if !d.without("hostile") || d.without("namespace") {
		t.Error("a reload must go on without the one that does not start, and never without the other")
	}
	if _, err := d.restartDriver(t.Context(), "hostile"); err == nil || !strings.Contains(err.Error(), "no database today") || len(signals) > 0 {
		t.Errorf("raven driver restart: %v", err)
	}
	if err := os.Rename(good, program); err != nil {
		t.Fatal(err)
	}
	if _, err := d.restartDriver(t.Context(), "hostile"); err == nil || !strings.Contains(err.Error(), "it starts now") || len(signals) != 1 || <-signals != syscall.SIGHUP {
		t.Errorf("raven driver restart, mended: %v", err)
	}
	if l, err := from.loadDespite(t.Context(), d.without); err != nil || l.Programs[1].down != nil || l.Programs[1].Info.Name != "hostile" {
		t.Errorf("the reload: %+v, %v", l, err)
	}
}

// What is configured wrongly is no driver that does not start: it ends the start, as ever.
func TestConfigurationErrorsEndTheStart(t *testing.T) {
	conf, from, _ := downRig(t)
	for option, says := range map[config.Name][2]string{
		{Group: "driver:hostile", Name: "sha256"}:      {strings.Repeat("0", 64), "sha256"},
		{Group: "raven", Name: "drivers"}:              {"namespace,none", "none"},
		{Group: "driver:hostile", Name: "allow_kinds"}: {"port", "allow_kinds"},
	} {
		conf.Args = map[config.Name][]string{option: {says[0]}}
		if _, err := from.loadDespite(t.Context(), func(string) bool { return true }); err == nil || !strings.Contains(err.Error(), says[1]) {
			t.Errorf("%s: %v", option, err)
		}
	}
	conf.Args = map[config.Name][]string{{Group: "raven", Name: "drivers"}: {"hostile"}, {Group: "driver:hostile", Name: "command"}: {"/bin/false"}}
	l, err := from.loadDespite(t.Context(), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if r, err := prepare(t.Context(), l, slog.New(slog.DiscardHandler), false); !errors.Is(err, host.ErrNotStarted) {
		if err == nil {
			r.stop(t.Context())
		}
		t.Errorf("with no driver at all: %v", err)
	}
}
