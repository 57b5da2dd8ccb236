// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The secret that every rig's cloud wants. No output may ever contain it.
const password = "Corvus-corax-9471"

// patience is how long anything may take that a test waits for. It only ends tests that would never end.
const patience = 2 * time.Minute

// rig is one cluster, one cloud, and a folder with links to the programs and the files of one raven.
type rig struct {
	t     *testing.T
	dir   string
	kube  *simkube.API
	cloud *simcloud.Cloud
	conf  harness.Settings
	env   []string // beside what every raven has
	tty   *os.File // the terminal that programs are started at; nil: none

	mu    sync.Mutex
	names map[string]string // of namespaces and pods, by UID
	runs  []*raven
}

// newRig starts a cluster and a cloud. Everything of it ends with the test; a process that is left then is an error.
func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, simOptions(), nil)
}

// simOptions are those of an ordinary cluster.
func simOptions() simkube.Options { return simkube.Options{} }

// newRigWith makes a rig in a given cloud; nil makes it one of its own.
func newRigWith(t *testing.T, ko simkube.Options, cloud *simcloud.Cloud) *rig {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(programs), "r") //nolint:usetesting // short: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, kube: simkube.New(ko), cloud: cloud, names: map[string]string{}}
	t.Cleanup(r.close)
	if _, err := r.kube.Start(""); err != nil {
		t.Fatal(err)
	}
	if r.cloud == nil {
		r.cloud = newCloud(t, simcloud.Options{})
	}
	for _, f := range []string{"raven", "raven-driver-namespace", "raven-driver-pod"} {
		r.install(f, "bin/"+f)
	}
	for _, gvr := range sources() {
		if _, err := r.kube.Follow(gvr, r.note); err != nil {
			t.Fatal(err)
		}
	}
	r.write("kubeconfig", string(r.kube.Kubeconfig()))
	r.defaults()
	return r
}

func newCloud(t *testing.T, o simcloud.Options) *simcloud.Cloud {
	t.Helper()
	o.Password = password
	c := simcloud.New(o)
	t.Cleanup(c.Close)
	if _, err := c.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	return c
}

// defaults are the settings of a raven that finds its cluster and its cloud, and is quick about it.
func (r *rig) defaults() {
	r.conf = harness.Settings{}
	r.conf.Set("DEFAULT", "graceful_shutdown_timeout", 60)
	r.conf.Set("kubernetes", "kubeconfig", r.path("kubeconfig"))
	r.conf.Set("neutron", "auth_url", r.cloud.AuthURL()).Set("neutron", "username", simcloud.UserKuryr).
		Set("neutron", "password", password).Set("neutron", "project_name", simcloud.ProjectKuryr).
		Set("neutron", "ambiguous_create_wait", 1)
	r.conf.Set("health_server", "port", 0).Set("prometheus_exporter", "port", 0)
	r.conf.Set("raven", "runtime_dir", r.path("run")).Set("raven", "sweep_interval", 1).Set("raven", "plugin_dir",
		r.path("plugins"))
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, text string) string {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return r.path(name)
}

// configure writes kuryr.conf as the settings are now.
func (r *rig) configure() string {
	r.t.Helper()
	return r.write("kuryr.conf", r.conf.String())
}

// copy puts the content of a file below the rig's folder into another in its place, executable.
func (r *rig) copy(from, to string) {
	r.t.Helper()
	data, err := os.ReadFile(r.path(from))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.path(to)+".new", data, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.path(to)+".new", r.path(to)); err != nil {
		r.t.Fatal(err)
	}
}

// install puts a program under a name below the rig's folder, in place of what is there, as a package manager does.
func (r *rig) install(program, as string) {
	r.t.Helper()
	target := r.path(as)
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Link(filepath.Join(programs, program), target+".new"); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(target+".new", target); err != nil {
		r.t.Fatal(err)
	}
	_ = os.Remove(target + ".new") // rename leaves two links to one file as they are
}

func (r *rig) close() {
	for _, p := range r.runs {
		p.Kill()
	}
	within(r.t, "the end of every process", func() string { return strings.Join(processesBelow(r.dir), ", ") })
	r.kube.Close()
	if r.t.Failed() {
		for _, p := range r.runs {
			r.t.Logf("%s of %s wrote:\n%s", p.name, filepath.Base(r.dir), p.tail())
		}
	}
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Error(err)
	}
}

// note remembers the names behind UIDs, which differ from run to run.
func (r *rig) note(_ apiwatch.EventType, object map[string]any) {
	meta, _ := object["metadata"].(map[string]any)
	uid, _ := meta["uid"].(string)
	name, _ := meta["name"].(string)
	if ns, _ := meta["namespace"].(string); ns != "" {
		name = ns + "/" + name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[uid] = "<" + name + ">"
}

// dump is the state of the cloud, identity and all, with names in place of UIDs. Which addresses pods get, and their
// load balancers name, differs from run to run.
func (r *rig) dump() string {
	text := r.cloud.Dump(simcloud.DumpOptions{Identity: true, Hide: []string{"device_id", "status", "address"}})
	r.mu.Lock()
	var pairs []string
	for uid, name := range r.names {
		pairs = append(pairs, uid, name)
	}
	r.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.NewReplacer(pairs...).Replace(text)), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// within waits for a condition, which returns what is still amiss.
func within(t *testing.T, what string, amiss func() string) {
	t.Helper()
	if last := waitFor(patience, amiss); last != "" {
		t.Errorf("waiting for %s: %s", what, last)
	}
}

// waitFor asks until nothing is amiss or the time is over, and returns what is then. The longer it has waited, the
// less often it asks.
func waitFor(bound time.Duration, amiss func() string) string {
	for began := time.Now(); ; {
		last := amiss()
		waited := time.Since(began)
		if last == "" || waited > bound {
			return last
		}
		time.Sleep(min(max(waited/20, 5*time.Millisecond), 50*time.Millisecond))
	}
}

// must is within, and the end of the test where it is in vain.
func must(t *testing.T, what string, amiss func() string) {
	t.Helper()
	if last := waitFor(patience, amiss); last != "" {
		t.Fatalf("waiting for %s: %s", what, last)
	}
}

// kubeRequests are the requests to the cluster, without those for the Lease, which is renewed all the time.
func (r *rig) kubeRequests() []simkube.Request {
	return slices.DeleteFunc(r.kube.Requests(), func(q simkube.Request) bool {
		return strings.Contains(q.Path, "/leases")
	})
}
