// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"strings"
	"testing"
)

// A namespace driver from outside takes the place of the in-tree one; the pod driver finds its network by role.
func TestNamespaceDriverFromOutsideServesThePodDriver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("raven-driver-flatns", "plugins/raven-driver-flatns")
	r.conf.Set("raven", "drivers", "flatns,pod").Set("flatns", "cidr", "10.50.0.0/16")
	p := r.start("--strict")
	r.createNamespace("shop")
	r.createNamespace("blog")
	r.createPod("shop", "a")
	r.createPod("blog", "b")
	must(t, "both pods' ports", func() string {
		if r.portOf("shop", "a") == "" || r.portOf("blog", "b") == "" {
			return "a pod names no port"
		}
		return p.settled()
	})
	flat, subnet, group := "", "", ""
	for _, n := range r.cloud.Networks() {
		if n["name"] == "flat" {
			flat = fmt.Sprint(n["id"])
		}
	}
	for _, s := range r.cloud.Subnets() {
		if s["network_id"] == flat && s["cidr"] == "10.50.0.0/16" {
			subnet = fmt.Sprint(s["id"])
		}
	}
	for _, g := range r.cloud.SecurityGroups() {
		if g["name"] == "flat-sg" {
			group = fmt.Sprint(g["id"])
		}
	}
	ports := r.portIDs()
	if flat == "" || subnet == "" || group == "" || len(ports) != 2 {
		t.Fatalf("network %q, subnet %q, group %q, %d ports", flat, subnet, group, len(ports))
	}
	for _, port := range r.cloud.Ports() {
		fixed, _ := port["fixed_ips"].([]any)
		groups, _ := port["security_groups"].([]any)
		if len(fixed) != 1 || port["network_id"] != flat || fixed[0].(map[string]any)["subnet_id"] != subnet ||
			fmt.Sprint(groups) != fmt.Sprint([]any{group}) {
			t.Errorf("the port is not on the flat network: %v", port)
		}
	}
	ns, err := r.kube.Get(namespaces(), "", "shop")
	r.check(err)
	if a, _ := ns["metadata"].(map[string]any)["annotations"].(map[string]any); a["flatns.example/network"] != flat {
		t.Errorf("namespace shop is annotated %v", a)
	}

	r.deleteNamespace("shop")
	must(t, "the end of the port in shop", func() string {
		if n := len(r.portIDs()); n != 1 {
			return fmt.Sprintf("there are %d ports", n)
		}
		return p.settled()
	})
	p.stop()
}

// A running cluster changes over to the other namespace driver: what the disabled one made is left alone.
func TestDisabledNamespaceDriverKeepsWhatItMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.install("raven-driver-flatns", "plugins/raven-driver-flatns")
	r.conf.Set("raven", "drivers", "namespace").Set("raven", "drift_check_interval", 1)
	p := r.start()
	r.createNamespace("shop")
	must(t, "rest", func() string { return p.settled() + r.clusterAmiss() })
	p.stop()
	before := r.dump()
	r.conf.Set("raven", "drivers", "flatns")
	p = r.start()
	must(t, "the other driver at work", func() string {
		s, err := p.status()
		if err != nil {
			return err.Error()
		}
		for _, o := range s.Objects {
			if o.Kind == "Namespace" && (o.State != "done" || o.Driver != "flatns") {
				return fmt.Sprintf("namespace %s of %s is %s", o.Name, o.Driver, o.State)
			}
		}
		if !s.Ready || len(s.Objects) < 5 {
			return "not every object has been answered"
		}
		return ""
	})
	r.awaitDriftChecks(3)
	p.stop()
	after := r.dump()
	for line := range strings.Lines(before) {
		if !strings.Contains(after, line) {
			t.Errorf("gone or changed: %s", line)
		}
	}
}
