// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/health"
	"github.com/kuryr/raven/test/harness"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// A service that is unavailable at the start is waited for: the daemon stays, is not ready, says why, and begins when
// it can.
func TestStartWaitsForServices(t *testing.T) {
	t.Parallel()
	unavailable := map[string]func(r *rig) func(){
		linkKubernetes: func(r *rig) func() {
			fault := simkube.Fault{Path: "^/api/v1/namespaces/kube-system", Status: http.StatusInternalServerError}
			_, err := r.kube.Inject(fault)
			if err != nil {
				r.t.Fatal(err)
			}
			return r.kube.ClearFaults
		},
		linkKeystone: func(r *rig) func() { return r.fault(simcloud.Rule{Kind: "token", Method: http.MethodPost}) },
		linkNeutron:  func(r *rig) func() { return r.fault(simcloud.Rule{Kind: "extension", Method: http.MethodGet}) },
	}
	for link, cut := range unavailable {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.create(configmaps, "a")
			heal := cut(r)
			p := r.start(nil)
			p.awaitComponent("raven", health.NotReady, "the start waits for "+link)
			p.awaitComponent(link, health.NotReady, map[string]string{linkKubernetes: "injected fault"}[link])
			if link != linkNeutron {
				p.awaitComponent(linkNeutron, health.NotReady, "not asked yet")
			}
			if report := p.report(); report.Ready || !strings.HasPrefix(report.WaitsFor, link+": ") {
				t.Errorf("it reports %+v", report)
			}
			heal()
			p.awaitReady()
			r.awaitNetworks("configmaps-a")
			for _, name := range []string{linkKubernetes, linkKeystone, linkNeutron} {
				p.awaitComponent(name, health.Ready, "")
			}
			if text := p.report().WaitsFor; text != "" {
				t.Errorf("it still waits for %s", text)
			}
		})
	}
}

// A start that waits has a line for load balancing where a driver needs that.
func TestLinksOfAStart(t *testing.T) {
	d := &Daemon{loaded: &Settings{Programs: []Program{{Info: drivers.Info{Kinds: []drivers.Kind{drivers.KindPort}}}}}}
	if slices.Contains(d.links(), linkOctavia) {
		t.Error("no driver needs load balancing")
	}
	balances := Program{Info: drivers.Info{Kinds: []drivers.Kind{drivers.KindLoadBalancer}}}
	d.loaded.Programs = append(d.loaded.Programs, balances)
	if !slices.Contains(d.links(), linkOctavia) {
		t.Error("a driver needs load balancing")
	}
}

// A Neutron that logs in and does not list is waited for by who leads, which is not ready meanwhile.
func TestLeadingWaitsForTheFirstList(t *testing.T) {
	r := newRig(t)
	r.create(configmaps, "a")
	heal := r.fault(simcloud.Rule{Kind: "network", Method: http.MethodGet})
	p := r.start(nil)
	p.awaitComponent(leaderComponent, health.NotReady, "taking over")
	p.awaitComponent(linkNeutron, health.Degraded, "503")
	heal()
	p.awaitReady()
	r.awaitNetworks("configmaps-a")
}

// A start that waits stops as asked, takes another configuration over, and ends when the answer is a refusal.
func TestStartThatWaitsIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	heal := r.fault(simcloud.Rule{Kind: "token", Method: http.MethodPost})
	stopped := r.start(nil)
	stopped.awaitComponent(linkKeystone, health.NotReady, "503")
	stopped.stop()

	p := r.start(nil)
	p.awaitComponent(linkKeystone, health.NotReady, "503")
	r.set("raven", "sweep_limit", "none")
	p.signals <- syscall.SIGHUP
	r.await("the refusal of a bad file", func() string {
		if !strings.Contains(p.log.String(), "the new configuration is not taken over") {
			return p.log.String()
		}
		return ""
	})
	r.set("raven", "sweep_limit", "7")
	r.set("neutron", "cloud", simcloud.CloudAppCred)
	p.signals <- syscall.SIGHUP
	r.await("the new file", func() string {
		if p.values().Int(OptionGroup, "sweep_limit") != 7 {
			return "the old one is in force"
		}
		return ""
	})
	heal()
	p.awaitReady()
	p.stop()

	r.fault(simcloud.Rule{Kind: "token", Method: http.MethodPost, Times: 1})
	r.fault(simcloud.Rule{Kind: "token", Method: http.MethodPost, Status: http.StatusUnauthorized})
	log := &harness.Buffer{}
	d, err := New(t.Context(), Config{Loader: r.loader(nil), Signals: make(chan os.Signal, 1), Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(log.String(), "the start waits for") {
		t.Errorf("it did not wait first:\n%s", log.String())
	}
}

// After the start, each service has its line, which follows its last answer.
func TestLinesOfServices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.set("raven", "drift_check_interval", "1")
	p := r.start(nil)
	p.awaitReady()
	heal := r.fault(simcloud.Rule{Kind: "network", Method: http.MethodGet})
	p.awaitComponent(linkNeutron, health.Degraded, "it cannot be used since")
	heal()
	p.awaitComponent(linkNeutron, health.Ready, "")
	p.awaitComponent(linkOctavia, health.Ready, "")
}

// fault has the cloud answer 503, or what the rule says, until it is healed.
func (r *rig) fault(rule simcloud.Rule) (heal func()) {
	r.t.Helper()
	rule.Action = simcloud.ActionStatus
	if rule.Status == 0 {
		rule.Status = http.StatusServiceUnavailable
	}
	id, err := r.cloud.AddFault(rule)
	if err != nil {
		r.t.Fatal(err)
	}
	return func() { r.cloud.RemoveFault(id) }
}
