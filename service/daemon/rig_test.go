// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The drivers of a rig, by the resources that they make networks of, and the namespace of these.
const (
	configmaps      = "configmaps"
	serviceaccounts = "serviceaccounts"
	testNamespace   = "default"
)

// patience is how long anything may take that a test waits for.
const patience = 2 * time.Minute

// rig is a cluster, a cloud, and a kuryr.conf that enables the two drivers.
type rig struct {
	t       *testing.T
	dir     string
	kube    *simkube.API
	cloud   *simcloud.Cloud
	options map[config.Name]string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // short: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{
		t: t, dir: dir, kube: simkube.New(simkube.Options{}), cloud: simcloud.New(simcloud.Options{}),
		options: map[config.Name]string{},
	}
	t.Cleanup(r.kube.Close)
	t.Cleanup(r.cloud.Close)
	if _, err := r.kube.Start(""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cloud.Start(context.WithoutCancel(t.Context()), ""); err != nil {
		t.Fatal(err)
	}
	r.set("DEFAULT", "graceful_shutdown_timeout", "60")
	r.set("kubernetes", "kubeconfig", r.write("kubeconfig", string(r.kube.Kubeconfig()), 0o600))
	r.set("neutron", "cloud", simcloud.CloudMember)
	r.set("neutron", "clouds_file", r.write("clouds.yaml", string(r.cloud.CloudsYAML()), 0o600))
	r.set("neutron", "ambiguous_create_wait", "1")
	r.set("health_server", "port", "0")
	r.set("prometheus_exporter", "port", "0")
	r.set("raven", "drivers", configmaps+","+serviceaccounts)
	r.set("raven", "runtime_dir", filepath.Join(dir, "run"))
	r.set("raven", "sweep_interval", "1")
	for _, name := range []string{configmaps, serviceaccounts} {
		r.set(DriverGroup(name), "command", serving(name))
	}
	return r
}

// serving is the command of a driver of a resource.
func serving(resource string) string { return namer + " " + resource + " " + testNamespace }

func (r *rig) write(name, text string, mode os.FileMode) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// script makes an executable of a driver, in place of what is there.
func (r *rig) script(name, text string) string {
	r.t.Helper()
	r.write(name+".new", "#!/bin/sh\n"+text+"\n", 0o755)
	path := filepath.Join(r.dir, name)
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// set changes an option of the kuryr.conf.
func (r *rig) set(group, name, value string) {
	r.t.Helper()
	r.options[config.Name{Group: group, Name: name}] = value
	groups := map[string][]string{}
	for option, value := range r.options {
		groups[option.Group] = append(groups[option.Group], option.Name+" = "+value)
	}
	var text strings.Builder
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&text, "[%s]\n%s\n", group, strings.Join(groups[group], "\n"))
	}
	r.write("kuryr.conf", text.String(), 0o600)
}

// loader reads the rig's kuryr.conf, with options that are stronger than it.
func (r *rig) loader(args map[config.Name][]string) Loader {
	return Loader{Version: "test", DriverStartTimeout: patience, Sources: func() (config.Sources, error) {
		return config.Sources{Files: []string{filepath.Join(r.dir, "kuryr.conf")}, Args: args}, nil
	}}
}

// create makes an object of a resource in the cluster.
func (r *rig) create(resource, name string) {
	r.t.Helper()
	object := map[string]any{"metadata": map[string]any{"namespace": testNamespace, "name": name}}
	if _, err := r.kube.Create(schema.GroupVersionResource{Version: "v1", Resource: resource}, object); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(resource, name string) {
	r.t.Helper()
	if err := r.kube.Delete(schema.GroupVersionResource{Version: "v1", Resource: resource}, testNamespace,
		name); err != nil {
		r.t.Fatal(err)
	}
}

// awaitNetworks waits until the drivers' networks are those, and no others.
func (r *rig) awaitNetworks(want ...string) {
	r.t.Helper()
	slices.Sort(want)
	r.await(fmt.Sprintf("networks %v", want), func() string {
		if have := r.networks(); !slices.Equal(have, want) {
			return fmt.Sprintf("there are %v", have)
		}
		return ""
	})
}

// networks are the names of what is in the cloud with an identity.
func (r *rig) networks() []string {
	var names []string
	for _, n := range r.cloud.Networks() {
		if text, _ := n["description"].(string); strings.Contains(text, "raven:cluster=") {
			names = append(names, fmt.Sprint(n["name"]))
		}
	}
	slices.Sort(names)
	return names
}

// holdCreate lets the next create of a network wait in the cloud: it is there when inFlight is closed, and ends when
// release was called.
func (r *rig) holdCreate() (inFlight <-chan struct{}, release func()) {
	came, released := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	r.t.Cleanup(release)
	var once sync.Once
	r.cloud.OnRequest(func(_ int, q simcloud.Request) {
		if q.Method == http.MethodPost && q.Kind == "network" && !q.After {
			once.Do(func() {
				close(came)
				<-released
			})
		}
	})
	return came, release
}

// await waits until nothing is amiss any more.
func (r *rig) await(what string, amiss func() string) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		last := amiss()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("waiting for %s: %s", what, last)
		}
	}
}

// running is a daemon in this process.
type running struct {
	*Daemon
	r       *rig
	signals chan os.Signal
	log     *harness.Buffer
	done    chan struct{}
	err     error // of Run; read after done
}

// start runs a daemon, until the end of the test at the latest.
func (r *rig) start(args map[config.Name][]string) *running {
	r.t.Helper()
	p := &running{r: r, signals: make(chan os.Signal, 8), log: &harness.Buffer{}, done: make(chan struct{})}
	var err error
	p.Daemon, err = New(r.t.Context(), Config{Loader: r.loader(args), Signals: p.signals, Stderr: p.log})
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.Run(context.WithoutCancel(r.t.Context()))
	}()
	r.t.Cleanup(func() {
		p.stop()
		if r.t.Failed() {
			r.t.Log(p.log.String())
		}
	})
	return p
}

// stop ends it as an init system does, and waits until it has ended. It may be called again.
func (p *running) stop() {
	p.r.t.Helper()
	select {
	case <-p.done:
	case p.signals <- syscall.SIGTERM:
		p.wait()
	}
}

// wait waits until it has ended as asked.
func (p *running) wait() {
	p.r.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.r.t.Fatal("it does not stop")
	}
	if p.err != nil {
		p.r.t.Errorf("it ended with %v", p.err)
	}
}

// report is what `raven status` prints of it.
func (p *running) report() Report {
	p.r.t.Helper()
	answer, err := p.status(url.Values{})
	report, ok := answer.(Report)
	if err != nil || !ok {
		p.r.t.Fatalf("the status is %v, %v", answer, err)
	}
	return report
}

// of is what it reports of a driver.
func (p *running) of(driver string) DriverReport {
	p.r.t.Helper()
	list := p.report().Drivers
	i := slices.IndexFunc(list, func(d DriverReport) bool { return d.Name == driver })
	if i < 0 {
		return DriverReport{}
	}
	return list[i]
}

// component is how a part of it stands.
func (p *running) component(name string) health.Report {
	for _, report := range p.registry.Reports() {
		if report.Name == name {
			return report
		}
	}
	return health.Report{}
}

// awaitComponent waits until a part of it stands as wanted, for a reason that says so.
func (p *running) awaitComponent(name string, state health.State, says string) {
	p.r.t.Helper()
	p.r.await(fmt.Sprintf("%s to be %s", name, state), func() string {
		if have := p.component(name); have.State != state || !strings.Contains(have.Reason, says) {
			return fmt.Sprintf("it is %s: %s", have.State, have.Reason)
		}
		return ""
	})
}

// awaitReady waits until all drivers have answered.
func (p *running) awaitReady() {
	p.r.t.Helper()
	for _, name := range []string{"raven", "driver " + configmaps, "driver " + serviceaccounts} {
		p.awaitComponent(name, health.Ready, "")
	}
}

// watcher is that of a driver.
func (p *running) watcher(driver string) *Watcher {
	p.r.t.Helper()
	if r := p.current(); r != nil {
		for _, w := range r.watchers {
			if w.Name() == driver {
				return w
			}
		}
	}
	p.r.t.Fatalf("there is no watcher of driver %s", driver)
	return nil
}
