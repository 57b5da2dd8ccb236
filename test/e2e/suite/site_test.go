// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// site is one installation of Raven: a cluster id, a kuryr.conf and a folder of its own.
type site struct {
	name, dir, cluster string
	conf               harness.Settings
	families           []string // "4", "6"
	dedicated          bool
	raven              *raven          // nil while it does not run
	with               string          // the options that it was started with beside conf
	balances           bool            // it has the driver lbaas
	proxies            bool            // it has the driver kubeproxy
	stale              map[string]bool // ids in annotations that another site wrote
}

// newSite makes the files of an installation.
func newSite(t *testing.T, name string, conf harness.Settings) *site {
	t.Helper()
	s := &site{
		name: name, dir: filepath.Join(world.artifacts, "site-"+name),
		cluster: fmt.Sprintf("e2e-%s-%d", name, time.Now().UnixNano()/1e6),
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	health, err := stack.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s.conf = harness.Settings{}.
		Set("DEFAULT", "graceful_shutdown_timeout", 30).
		Set("kubernetes", "kubeconfig", world.accountFile).
		Set("neutron", "cloud", "e2e").Set("neutron", "clouds_file", world.clouds).
		Set("neutron", "ambiguous_create_wait", 20).
		Set("health_server", "port", health).Set("prometheus_exporter", "port", 0).
		Set("raven", "cluster_id", s.cluster).Set("raven", "cluster_name", s.name).
		Set("raven", "runtime_dir", filepath.Join(world.scratch, name)).
		Set("raven", "sweep_interval", 5).Set("raven", "drift_check_interval", 20).
		With(conf)
	s.dedicated = s.conf["namespace_subnet"]["topology"] == "dedicated"
	switch s.conf["namespace_subnet"]["ip_families"] {
	case "ipv6":
		s.families = []string{"6"}
	case "dual":
		s.families = []string{"4", "6"}
	default:
		s.families = []string{"4"}
	}
	return s
}

// standing is the site that most scenarios share, shared topology and IPv4, with its raven running and done. What a
// scenario made is gone at its end, or the test fails.
func standing(t *testing.T, more ...harness.Settings) *site {
	t.Helper()
	if world.standing == nil {
		world.standing = newSite(t, "standing", standingConf())
	}
	s := world.standing
	s.use(t, more...)
	return s
}

// balancing is the standing site with load balancers for Services, of provider ovn unless a Service says otherwise.
// Its raven runs on for the next scenario that wants one.
func balancing(t *testing.T) *site {
	t.Helper()
	if world.cloud.balancing == nil {
		lacks(t, "the cloud has no load balancing service")
	}
	if world.external == "" {
		lacks(t, "the name of an external network is not known: neither RAVEN_E2E_STACK nor RAVEN_E2E_EXTERNAL is set")
	}
	if world.standing == nil {
		world.standing = newSite(t, "standing", standingConf())
	}
	s := world.standing
	s.start(t, servicesConf())
	s.lend(t, false)
	return s
}

// activation is when the site's raven says that a load balancer has been busy for too long.
const activation = 10 * time.Second

// servicesConf are the options of a site with load balancers.
func servicesConf() harness.Settings {
	return harness.Settings{}.Set("raven", "drivers", "namespace,pod,lbaas").Set("octavia_defaults", "provider", "ovn").
		Set("neutron_defaults", "external_svc_net", world.external).Set("neutron_defaults", "lbaas_activation_timeout",
		int(activation.Seconds())).
		Set("raven", "drift_check_interval", 10)
}

func standingConf() harness.Settings {
	return harness.Settings{}.Set("namespace_subnet", "subnet_prefix_length", 28)
}

// own is a site for one scenario. Nothing of it is left at its end, or the test fails.
func own(t *testing.T, name string, conf harness.Settings) *site {
	t.Helper()
	s := newSite(t, name, conf)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.stop(t)
		if err := world.cloud.purge(ctx, s.cluster); err != nil {
			t.Errorf("removing what is left of site %s: %v", s.name, err)
		}
		if left, err := world.cloud.ours(ctx, s.cluster); err != nil || len(left) > 0 {
			t.Errorf("left in the cloud (%v): %s", err, strings.Join(describe(left), ", "))
		}
	})
	s.use(t)
	return s
}

// use starts the site's raven for a scenario.
func (s *site) use(t *testing.T, more ...harness.Settings) {
	t.Helper()
	conf := harness.Settings{}
	for _, one := range more {
		conf = conf.With(one)
	}
	s.start(t, conf)
	s.lend(t, len(more) > 0)
}

// lend gives the site to a scenario. At its end the site must be as it was: nothing but what every namespace of a
// cluster has.
func (s *site) lend(t *testing.T, stop bool) {
	t.Helper()
	folder := filepath.Join(world.artifacts, t.Name())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	requestsOf(t)
	s.settled(t)
	s.record(t, folder, "before")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			s.record(t, folder, "failed")
			s.status(ctx, folder)
		}
		s.clear(ctx, t)
		s.record(t, folder, "after")
		if stop {
			s.stop(t) // the next one starts it as usual
		}
	})
}

// start runs the site's raven with these options beside the site's own, if it does not run so yet, and ends another
// site's.
func (s *site) start(t *testing.T, more harness.Settings) {
	t.Helper()
	if other := world.running; other != nil && other != s {
		other.stop(t)
	}
	if s.raven != nil && s.raven.died() == "" {
		if s.with == more.String() {
			return
		}
		s.stop(t)
	}
	if world.last != s {
		s.leftovers(t)
	}
	path := filepath.Join(s.dir, "kuryr.conf")
	if err := os.WriteFile(path, []byte(s.conf.With(more).String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := launch(path, filepath.Join(s.dir, "raven.log"))
	if err != nil {
		t.Fatal(err)
	}
	s.raven, s.with, world.running, world.last = r, more.String(), s, s
	names := cmp.Or(more["raven"]["drivers"], s.conf["raven"]["drivers"])
	s.balances, s.proxies = strings.Contains(names, "lbaas"), strings.Contains(names, "kubeproxy")
}

// leftovers remembers the annotations that are there before this site writes any.
func (s *site) leftovers(t *testing.T) {
	t.Helper()
	c, err := look(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.stale = map[string]bool{}
	for i := range c.namespaces {
		s.stale[document(&c.namespaces[i], networkAnnotation).str("id")] = true
	}
	for i := range c.pods {
		s.stale[document(&c.pods[i], portAnnotation).str("id")] = true
	}
}

// restart is start after an end by whatever reason, with the files as they are.
func (s *site) restart(t *testing.T) {
	t.Helper()
	r, err := launch(filepath.Join(s.dir, "kuryr.conf"), filepath.Join(s.dir, "raven.log"))
	if err != nil {
		t.Fatal(err)
	}
	s.raven, world.running = r, s
}

// stop ends the site's raven in order, if it runs.
func (s *site) stop(t *testing.T) {
	t.Helper()
	if s.raven == nil {
		return
	}
	if status, err := s.raven.end(); err != nil || status != 0 {
		t.Errorf("stopping raven: exit status %d, %v", status, err)
	}
	s.raven, world.running = nil, nil
}

// settled waits until cloud and cluster agree.
func (s *site) settled(t *testing.T) {
	t.Helper()
	await(t, "cloud and cluster to agree", s.amiss)
}

// clear waits until nothing of the scenario is left in the cloud and in the cluster. Namespaces that a scenario left
// behind when it failed go here: the next one would wait for them in vain.
func (s *site) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	if s.raven == nil {
		s.start(t, nil)
	}
	if amiss := waitFor(ctx, patience, func(ctx context.Context) string {
		list, err := namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, ns := range list.Items {
			if usual(ns.GetName()) {
				continue
			}
			if ns.GetDeletionTimestamp() == nil {
				err = namespaces().Delete(ctx, ns.GetName(), metav1.DeleteOptions{})
			}
			return fmt.Sprintf("namespace %s is still there (%v)", ns.GetName(), err)
		}
		return s.amiss(ctx)
	}); amiss != "" {
		t.Errorf("waiting for the end of what the scenario made: %s", amiss)
	}
}

// usual says whether every cluster has a namespace of this name.
func usual(name string) bool {
	return name == "default" || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "local-path-")
}

// record writes how cloud and cluster stand to a file.
func (s *site) record(t *testing.T, folder, when string) {
	t.Helper()
	text, err := s.dump(context.Background(), nil)
	if err != nil {
		text = "cannot be told: " + err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# site %s, cluster %s, %s\n\n## Neutron\n%s\n## Kubernetes\n", s.name, s.cluster,
		time.Now().Format(time.RFC3339), text)
	for _, kind := range []string{"namespaces", "pods", "services"} {
		list, err := world.kube.Resource(resource(kind)).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			fmt.Fprintf(&b, "%s cannot be told: %v\n", kind, err)
			continue
		}
		for _, o := range list.Items {
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			fmt.Fprintf(&b, "%s %s/%s %s port=%s network=%s balancer=%s labels=%v deleted=%v\n", kind, o.GetNamespace(),
				o.GetName(), phase,
				document(&o, portAnnotation).str("id"), document(&o, networkAnnotation).str("id"),
				document(&o, vipAnnotation).str("id"),
				o.GetLabels(), o.GetDeletionTimestamp())
		}
	}
	if err := os.WriteFile(filepath.Join(folder, when+".txt"), []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// status keeps what Raven says of itself. It is for people; no scenario reads it.
func (s *site) status(ctx context.Context, folder string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, _ := program(ctx, "status", "--config-file", filepath.Join(s.dir, "kuryr.conf")).CombinedOutput()
	_ = os.WriteFile(filepath.Join(folder, "raven-status.txt"), out, 0o644)
}
