// SPDX-License-Identifier: Apache-2.0

// Package web_test opens the page of the real raven, against the simulations, in a real Chromium. It is a module of its
// own, so that Raven does not depend on the driver of the browser. It must not test what needs no browser.
package web_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

const password = "not a secret"

func gvr(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// world is a simulated cluster and cloud with the real raven.
type world struct {
	tb      testing.TB
	kube    *simkube.API
	cloud   *simcloud.Cloud
	process *harness.Process
	dir     string
	port    int
}

func program(tb testing.TB) string {
	tb.Helper()
	path, err := filepath.Abs("../../bin/raven")
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		tb.Skip("there is no bin/raven: run make build first")
	}
	return path
}

func newWorld(tb testing.TB, o simcloud.Options) *world {
	tb.Helper()
	o.Password = password
	w := &world{tb: tb, kube: simkube.New(simkube.Options{}), cloud: simcloud.New(o), dir: tb.TempDir()}
	tb.Cleanup(func() { w.kube.Close(); w.cloud.Close() })
	if _, err := w.kube.Start(""); err != nil {
		tb.Fatal(err)
	}
	if _, err := w.cloud.Start(tb.Context(), ""); err != nil {
		tb.Fatal(err)
	}
	w.port = freePort(tb)
	var conf harness.Settings = map[string]map[string]string{}
	conf.Set("kubernetes", "kubeconfig", w.write("kubeconfig", string(w.kube.Kubeconfig()))).
		Set("neutron", "auth_url", w.cloud.AuthURL()).Set("neutron", "username", simcloud.UserKuryr).
		Set("neutron", "password", password).Set("neutron", "project_name", simcloud.ProjectKuryr).
		Set("health_server", "port", 0).Set("prometheus_exporter", "port", 0).
		Set("octavia_defaults", "provider", "amphora").
		Set("raven", "drivers", "namespace,pod,lbaas").Set("raven", "runtime_dir", filepath.Join(w.dir, "run")).
		Set("web", "enabled", true).Set("web", "port", w.port)
	w.write("kuryr.conf", conf.String())
	w.start()
	tb.Cleanup(w.stop)
	return w
}

func (w *world) write(name, text string) string {
	w.tb.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.tb.Fatal(err)
	}
	return path
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (w *world) url() string { return fmt.Sprintf("http://127.0.0.1:%d/", w.port) }

func (w *world) start() {
	w.tb.Helper()
	cmd := harness.Command(context.Background(), program(w.tb), w.dir, nil, "run", "--config-file",
		filepath.Join(w.dir, "kuryr.conf"), "--set", "DEFAULT.log_file="+filepath.Join(w.dir, "raven.log"))
	process, err := harness.Start(cmd)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.process = process
}

func (w *world) stop() {
	w.tb.Helper()
	if err := w.process.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.tb.Error(err)
	}
	<-w.process.Ended
	if w.tb.Failed() {
		text, _ := os.ReadFile(filepath.Join(w.dir, "raven.log"))
		w.tb.Logf("the end of raven's log:\n%s", text[max(0, len(text)-3000):])
	}
}

func (w *world) namespace(name string) {
	w.tb.Helper()
	w.create("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
}

func (w *world) pod(namespace, name string) {
	w.tb.Helper()
	w.create("pods", map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": name, "namespace": namespace, "labels": map[string]any{"app": "web"},
		},
		"spec": map[string]any{"nodeName": "worker-1", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	})
}

func (w *world) service(namespace, name string) {
	w.tb.Helper()
	w.create("services", map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"type": "ClusterIP", "selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": int64(80)}},
		},
	})
}

func (w *world) create(resource string, object map[string]any) {
	w.tb.Helper()
	if _, err := w.kube.Create(gvr(resource), object); err != nil {
		w.tb.Fatal(err)
	}
}

// page is a tab of a browser.
type page struct {
	tb  testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // what the browser reported: exceptions, and what the policy forbade
}

// browse starts a browser, with one tab.
func browse(tb testing.TB) *page {
	tb.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		tb.Skip("there is no chromium here; on Debian: apt install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(tb.TempDir()), chromedp.WSURLReadTimeout(time.Minute))
	allocated, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	tb.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(allocated, chromedp.WithErrorf(func(format string, args ...any) {
		slog.Debug(fmt.Sprintf(format, args...)) // events that the driver does not know
	}))
	p := &page{tb: tb, ctx: ctx}
	chromedp.ListenTarget(ctx, p.listen)
	tb.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			tb.Error(err)
		}
		cancelTab()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			tb.Error("the browser reports:", problem)
		}
	})
	p.do(cdplog.Enable(), p.as(1280, 800, "light"))
	return p
}

// run runs a part of a test in the page.
func (p *page) run(t *testing.T, name string, part func(*testing.T)) {
	t.Helper()
	t.Run(name, func(inner *testing.T) {
		outer := p.tb
		defer func() { p.tb = outer }()
		p.tb = inner
		part(inner)
	})
}

func (p *page) listen(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Error()
	case *cdplog.EventEntryAdded:
		// That the daemon is away while it restarts is expected.
		if e.Entry.Level == cdplog.LevelError && !strings.Contains(e.Entry.Text, "net::ERR_") {
			problem = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if problem != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.problems = append(p.problems, problem)
	}
}

func (p *page) as(width, height int64, scheme string) chromedp.Action {
	return chromedp.Tasks{
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		emulation.SetDeviceMetricsOverride(width, height, 1, width < 500),
	}
}

const patience = 30 * time.Second

func (p *page) do(actions ...chromedp.Action) {
	p.tb.Helper()
	if err := p.try(actions...); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *page) try(actions ...chromedp.Action) error {
	// The browser lives as long as the context of its first use: a bound must not be that.
	if chromedp.FromContext(p.ctx).Target == nil {
		if err := chromedp.Run(p.ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// until waits for a condition in the page, which is looked at with each frame.
func (p *page) until(condition string) {
	p.tb.Helper()
	if err := p.try(chromedp.Poll(condition, nil, chromedp.WithPollingTimeout(patience))); err != nil {
		p.tb.Fatalf("waiting for %s: %v; the page says:\n%s", condition, err, p.text())
	}
}

// untilText waits for a text in an element.
func (p *page) untilText(selector, text string) {
	p.tb.Helper()
	p.until(fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, text))
}

func (p *page) text() (text string) {
	p.tb.Helper()
	_ = p.try(chromedp.Evaluate("document.body.innerText", &text))
	return text
}

func (p *page) eval(script string, result any) {
	p.tb.Helper()
	p.do(chromedp.Evaluate(script, result, func(e *runtime.EvaluateParams) *runtime.EvaluateParams {
		return e.WithAwaitPromise(true)
	}))
}

// show opens a view of the page that is open.
func (p *page) show(hash string) {
	p.tb.Helper()
	p.eval(fmt.Sprintf("location.hash = %q; 0", hash), nil)
}
