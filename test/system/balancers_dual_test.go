// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"strings"
	"testing"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// newDualRig makes a rig whose cluster has both IP versions, and whose cloud may be old.
func newDualRig(t *testing.T, provider simcloud.Provider, old bool) *rig {
	t.Helper()
	r := newBalancerRigIn(t, simcloud.Options{Providers: []simcloud.Provider{provider}, NoAdditionalVIPs: old},
		"10.96.0.0/16,fd00:10:96::/112")
	r.conf.Set("namespace_subnet", "ip_families", "dual")
	return r
}

// addressesAmiss says what of a Service's clusterIPs is not served as it should be: by so many load balancers,
// ACTIVE, that have these addresses and no others, each with the pods of the Service as members of each of its ports.
func (r *rig) addressesAmiss(p *raven, name string, families, balancers int) string {
	svc, err := r.kube.Get(services(), "shop", name)
	r.check(err)
	var vips []string
	count := 0
	for _, lb := range r.cloud.LoadBalancers() {
		if lb["name"] != "shop/"+name {
			continue
		}
		count++
		if lb["provisioning_status"] != "ACTIVE" {
			return fmt.Sprintf("%v is %v; %s", lb["vip_address"], lb["provisioning_status"], p.settled())
		}
		vips = append(vips, fmt.Sprint(lb["vip_address"]))
		further, _ := lb["additional_vips"].([]any)
		for _, vip := range further {
			vips = append(vips, fmt.Sprint(at(vip, "ip_address")))
		}
	}
	if want := texts(at(svc, "spec", "clusterIPs")); len(want) != families || !sameTexts(want, vips) ||
		count != balancers {
		return fmt.Sprintf("%d load balancers with %v, the Service has %v; %s", count, vips, want, p.settled())
	}
	list, err := r.kube.List(pods(), "shop")
	r.check(err)
	backends := 0
	for _, pod := range list {
		if at(pod, "metadata", "labels", "app") == name {
			backends++
		}
	}
	ports, _ := at(svc, "spec", "ports").([]any)
	members := 0
	for _, m := range r.cloud.Objects("member") {
		if strings.HasPrefix(fmt.Sprint(m["name"]), "shop/"+name+"-") {
			members++
		}
	}
	if want := backends * len(ports) * balancers; members != want {
		return fmt.Sprintf("%d members, not %d; %s", members, want, p.settled())
	}
	return r.amiss(p)
}

// Both addresses of a Service are served: by one load balancer where the provider has additional VIPs, else by two:
// also in a cloud that is older than these, and where an operator asks for additional VIPs of a provider that shows
// them and makes none.
func TestDualStackServices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, mode string
		provider   simcloud.Provider
		old        bool
		balancers  int
	}{
		{"amphora", "auto", simcloud.Amphora(brief()), false, 1},
		{"amphora in an old cloud", "auto", simcloud.Amphora(brief()), true, 2},
		{"ovn", "auto", simcloud.OVN(brief()), false, 2},
		{"ovn", "additional-vips", simcloud.OVN(brief()), false, 2},
	} {
		t.Run(c.name+" "+c.mode, func(t *testing.T) {
			r := newDualRig(t, c.provider, c.old)
			r.conf.Set("octavia_defaults", "dual_stack", c.mode)
			p := r.start()
			r.createNamespace("shop")
			r.scale("shop", "web", 2)
			r.createService("shop", "web", object{"ipFamilyPolicy": "RequireDualStack"})
			must(t, "both addresses", func() string { return r.addressesAmiss(p, "web", 2, c.balancers) })
			p.stop()
		})
	}
}

// A Service goes from one address to two and back, served by one load balancer and by two, and an address that it
// gives up is another's.
func TestDualStackComesAndGoes(t *testing.T) {
	t.Parallel()
	r := newDualRig(t, simcloud.Amphora(brief()), false)
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 2)
	r.scale("shop", "next", 1)
	r.createService("shop", "web", object{"ipFamilyPolicy": "SingleStack"})
	served := func(what string, families, balancers int) {
		t.Helper()
		must(t, what, func() string { return r.addressesAmiss(p, "web", families, balancers) })
	}
	served("one address", 1, 1)
	svc, err := r.kube.Get(services(), "shop", "web")
	r.check(err)
	first, released := fmt.Sprint(at(svc, "spec", "clusterIP")), "fd00:10:96::77"
	families := func(policy, families, addresses string) { // as the API server does it
		r.patchService("shop", "web",
			fmt.Sprintf(`{"spec":{"ipFamilyPolicy":%q,"ipFamilies":[%s],"clusterIPs":[%s]}}`, policy, families, addresses))
	}
	families("PreferDualStack", `"IPv4","IPv6"`, fmt.Sprintf("%q,%q", first, released))
	served("a further one", 2, 1)
	const tcp = `{"name":"http","port":80,"targetPort":8080,"protocol":"TCP"}`
	r.patchService("shop", "web",
		`{"spec":{"ports":[`+tcp+`,{"name":"dns","port":53,"targetPort":5353,"protocol":"UDP"}]}}`)
	served("both, with a port that is not passed from one IP version to the other", 2, 2)
	r.patchService("shop", "web", `{"spec":{"ports":[`+tcp+`]}}`)
	served("both, without it", 2, 1)

	for mode, balancers := range map[string]int{"separate": 2, "additional-vips": 1} {
		p.stop()
		r.conf.Set("octavia_defaults", "dual_stack", mode)
		p = r.start()
		served("both, "+mode, 2, balancers)
	}

	families("SingleStack", `"IPv4"`, fmt.Sprintf("%q", first))
	r.createService("shop", "next",
		object{"ipFamilies": []any{"IPv6"}, "clusterIP": released, "clusterIPs": []any{released}})
	must(t, "the address at another Service", func() string {
		if text := r.addressesAmiss(p, "web", 1, 1); text != "" {
			return text
		}
		return r.addressesAmiss(p, "next", 1, 1)
	})
	p.stop()
}
