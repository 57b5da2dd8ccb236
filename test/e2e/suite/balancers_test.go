// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const balancerKind = "lbaas/loadbalancers"

// parts are those of a load balancer, as Octavia shows them.
type parts struct {
	provider         string
	listeners, pools []thing
	members          map[string][]thing // of a pool
	monitors         map[string]thing   // of a pool
}

// partsOf asks for the parts of a load balancer.
func partsOf(ctx context.Context, lb thing) (parts, error) {
	id := lb.str("id")
	p := parts{provider: lb.str("provider"), members: map[string][]thing{}, monitors: map[string]thing{}}
	var err error
	if p.listeners, err = world.cloud.list(ctx, "lbaas/listeners", "loadbalancer_id="+id); err != nil {
		return p, err
	}
	if p.pools, err = world.cloud.list(ctx, "lbaas/pools", "loadbalancer_id="+id); err != nil {
		return p, err
	}
	for _, pool := range p.pools {
		if p.members[pool.str("id")], err = world.cloud.list(ctx, "lbaas/pools/"+pool.str("id")+"/members", ""); err != nil {
			return p, err
		}
		if monitor := pool.str("healthmonitor_id"); monitor != "" {
			out, err := world.cloud.call(ctx, http.MethodGet, "lbaas/healthmonitors/"+monitor, nil)
			if err != nil {
				return p, err
			}
			p.monitors[pool.str("id")], _ = out["healthmonitor"].(map[string]any)
		}
	}
	return p, nil
}

// state is a part's, "" if it is done. Provider ovn leaves listeners PENDING_UPDATE when their pool was changed
// (measured, 3.0.0).
func (p parts) state(part thing) string {
	state := part.str("provisioning_status")
	if state == "ACTIVE" || state == "PENDING_UPDATE" && p.provider == "ovn" && part["default_pool_id"] != nil {
		return ""
	}
	return state
}

// serving says what is balanced: protocol, port and members of each listener that is done with all of its pool.
func (p parts) serving() []string {
	var out []string
	for _, l := range p.listeners {
		id := l.str("default_pool_id")
		state := []string{p.state(l)}
		for _, pool := range p.pools {
			if pool.str("id") == id {
				state = append(state, p.state(pool))
			}
		}
		var members []string
		for _, m := range p.members[id] {
			members = append(members, fmt.Sprintf("%s:%v", m.str("address"), m["protocol_port"]))
			state = append(state, p.state(m))
		}
		slices.Sort(members)
		state = slices.DeleteFunc(state, func(s string) bool { return s == "" })
		out = append(out, fmt.Sprint(l["protocol"], " ", l["protocol_port"], " to ", members, state))
	}
	slices.Sort(out)
	return out
}

// lines are all parts without what differs from run to run.
func (p parts) lines() []string {
	var out []string
	names := map[string]string{"": "no pool"}
	for _, pool := range p.pools {
		id := pool.str("id")
		names[id] = "pool " + pool.str("name")
		out = append(out, fmt.Sprintf("pool %s %v %v %v %v %s\n", pool.str("name"), pool["protocol"], pool["lb_algorithm"],
			pool["session_persistence"], pool["admin_state_up"], p.state(pool)))
		for _, m := range p.members[id] {
			out = append(out,
				fmt.Sprintf("pool %s member %s port %v weight %v %s\n", pool.str("name"), m.str("name"), m["protocol_port"],
					m["weight"],
					p.state(m)))
		}
		if m := p.monitors[id]; m != nil {
			out = append(out,
				fmt.Sprintf("pool %s monitor %v %v %v %v %s\n", pool.str("name"), m["type"], m["delay"], m["timeout"],
					m["max_retries"],
					p.state(m)))
		}
	}
	for _, l := range p.listeners {
		out = append(out,
			fmt.Sprintf("listener %s %v %v %v %v %v %s leads to %s\n", l.str("name"), l["protocol"], l["protocol_port"],
				l["connection_limit"],
				l["allowed_cidrs"], l["admin_state_up"], p.state(l), names[l.str("default_pool_id")]))
	}
	return slices.Sorted(slices.Values(trimmed(out)))
}

func trimmed(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

// served says whether a Service should have a load balancer: it has a clusterIP, is no other proxy's, and something
// is known of its endpoints. (Nobody makes those of the Service kubernetes here.)
func (c *cluster) served(svc *unstructured.Unstructured) bool {
	address, _, _ := unstructured.NestedString(svc.Object, "spec", "clusterIP")
	if _, theirs := svc.GetLabels()[proxyNameLabel]; theirs || address == "" || address == "None" {
		return false
	}
	return len(c.slicesOf(svc)) > 0
}

func (c *cluster) slicesOf(svc *unstructured.Unstructured) []thing {
	var out []thing
	for i := range c.slices {
		s := &c.slices[i]
		if s.GetNamespace() == svc.GetNamespace() && s.GetLabels()["kubernetes.io/service-name"] == svc.GetName() {
			out = append(out, s.Object)
		}
	}
	return out
}

// wanted says what should be balanced for a Service, in the form of serving.
func (c *cluster) wanted(svc *unstructured.Unstructured) []string {
	ports, _, _ := unstructured.NestedSlice(svc.Object, "spec", "ports")
	var out []string
	for _, p := range ports {
		port, _ := p.(map[string]any)
		protocol := cmp.Or(thing(port).str("protocol"), "TCP")
		members, leaving := []string{}, []string{}
		for _, slice := range c.slicesOf(svc) {
			ready, lingering := endpointsIn(slice, thing(port).str("name"), protocol)
			members, leaving = append(members, ready...), append(leaving, lingering...)
		}
		for _, address := range []string{"0.0.0.0", "::"} { // for each IP version by itself
			if len(sameFamily(address, members)) == 0 {
				members = append(members, sameFamily(address, leaving)...)
			}
		}
		slices.Sort(members)
		members = slices.Compact(members) // one may be in two slices
		out = append(out, fmt.Sprint(protocol, " ", port["port"], " to ", members, []string{}))
	}
	slices.Sort(out)
	return out
}

// endpointsIn lists the endpoints of an EndpointSlice for a port of a Service: the ready ones, and those that serve
// while they terminate.
func endpointsIn(slice thing, name, protocol string) (ready, lingering []string) {
	for _, port := range slice.things("ports") {
		if port.str("name") != name || port.str("protocol") != protocol {
			continue
		}
		for _, e := range slice.things("endpoints") {
			conditions, _ := e["conditions"].(map[string]any)
			member := fmt.Sprintf("%s:%v", e.strs("addresses")[0], port["port"])
			switch {
			case conditions["ready"] != false:
				ready = append(ready, member)
			case conditions["serving"] != false && conditions["terminating"] == true:
				lingering = append(lingering, member)
			}
		}
	}
	return ready, lingering
}

// servicesAmiss says where Services and load balancers do not agree, and takes from owned what is theirs. Octavia is
// asked only when all else is as it should be.
func servicesAmiss(ctx context.Context, c cluster, owned map[string][]thing) []string {
	var amiss []string
	balancers := map[*unstructured.Unstructured][]thing{}
	for uid, of := range owned { // a floating IP that Raven found stays, and may lead nowhere
		of = slices.DeleteFunc(of, func(o thing) bool {
			return o["kind"] == "floatingips" && o.str("port_id") == "" && o.token("policy") == "retain"
		})
		if owned[uid] = of; len(of) == 0 {
			delete(owned, uid)
		}
	}
	for i := range c.services {
		svc := &c.services[i]
		mine := owned[string(svc.GetUID())]
		delete(owned, string(svc.GetUID()))
		if svc.GetDeletionTimestamp() != nil || !c.served(svc) {
			continue
		}
		lbs, why := addressesAmiss(svc, mine)
		if why != "" {
			amiss = append(amiss, fmt.Sprintf("Service %s/%s: %s", svc.GetNamespace(), svc.GetName(), why))
		}
		balancers[svc] = lbs
	}
	for svc, lbs := range balancers {
		for _, lb := range lbs {
			if len(amiss) > 0 {
				return amiss
			}
			p, err := partsOf(ctx, lb)
			if err != nil {
				return append(amiss, "Octavia cannot be asked: "+err.Error())
			}
			if want, have := c.wanted(svc), p.serving(); !slices.Equal(want, have) {
				amiss = append(amiss, fmt.Sprintf("load balancer %s has %q and not %q", lb.str("name"), have, want))
			}
		}
	}
	if len(amiss) == 0 {
		amiss = append(amiss, remains(ctx)...)
	}
	return amiss
}

// addressesAmiss looks at a Service's load balancers and floating IPs: one that has the clusterIP, one more for each
// further floating IP; they are ACTIVE, and the status names what leads there. It returns the load balancers.
func addressesAmiss(svc *unstructured.Unstructured, owned []thing) (balancers []thing, amiss string) {
	at := map[string]string{} // a floating IP's address, by the port that it leads to
	for _, o := range owned {
		switch o["kind"] {
		case balancerKind:
			balancers = append(balancers, o)
		case "floatingips":
			at[o.str("port_id")] = o.str("floating_ip_address")
		}
	}
	address, _, _ := unstructured.NestedString(svc.Object, "spec", "clusterIP")
	var told string
	serving := 0
	var outside []string
	for _, lb := range balancers {
		if lb.str("provisioning_status") != "ACTIVE" {
			amiss += fmt.Sprintf("load balancer %s is %s; ", lb.str("name"), lb.str("provisioning_status"))
		}
		if lb.str("vip_address") == address {
			serving, told = serving+1, lb.str("id")
		}
		if fip := at[lb.str("vip_port_id")]; fip != "" {
			outside = append(outside, fip)
			delete(at, lb.str("vip_port_id"))
		}
	}
	if serving != 1 || len(balancers) != max(1, len(outside)) || len(at) > 0 {
		return balancers,
			amiss + fmt.Sprintf("%d load balancers, of which %d at %s; the floating IPs %v lead there, and %v elsewhere",
				len(balancers), serving, address, outside, slices.Sorted(maps.Values(at)))
	}
	if id := document(svc, vipAnnotation).str("id"); id != told {
		amiss += fmt.Sprintf("it is told of load balancer %q and has %s; ", id, told)
	}
	wanted, _, _ := unstructured.NestedStringSlice(svc.Object, "spec", "externalIPs")
	ingress, _, _ := unstructured.NestedSlice(svc.Object, "status", "loadBalancer", "ingress")
	for _, one := range ingress {
		entry, _ := one.(map[string]any)
		wanted = append(wanted, thing(entry).str("ip"))
	}
	kind, _, _ := unstructured.NestedString(svc.Object, "spec", "type")
	slices.Sort(wanted)
	slices.Sort(outside)
	if (kind == "LoadBalancer") != (len(ingress) == 1) || !slices.Equal(wanted, outside) {
		amiss += fmt.Sprintf("of type %s it has status %v and the floating IPs %v, not %v; ", kind, ingress, outside, wanted)
	}
	return balancers, amiss
}

// remains names what load balancers that are gone have left: VIP ports in Neutron, rows in OVN.
func remains(ctx context.Context) []string {
	balancers, err := world.cloud.list(ctx, balancerKind, "fields=id&project_id="+world.cloud.project)
	if err != nil {
		return []string{err.Error()}
	}
	there := map[string]bool{}
	for _, lb := range balancers {
		there[lb.str("id")] = true
	}
	ports, err := world.cloud.list(ctx, "ports", "fields=name&project_id="+world.cloud.project)
	if err != nil {
		return []string{err.Error()}
	}
	var amiss []string
	for _, port := range ports {
		id, vip := strings.CutPrefix(port.str("name"), "ovn-lb-vip-")
		if !vip {
			id, vip = strings.CutPrefix(port.str("name"), "octavia-lb-")
		}
		if vip && !there[id] && !strings.HasPrefix(id, "vrrp-") {
			amiss = append(amiss, "port "+port.str("name")+" is of a load balancer that is no more")
		}
	}
	if world.ovnNB == "" {
		return amiss
	}
	rows, err := nbctl(ctx, "--bare", "--columns=name", "list", "Load_Balancer")
	if err != nil {
		return append(amiss, err.Error())
	}
	for _, name := range strings.Fields(rows) {
		if !there[name] {
			amiss = append(amiss, "OVN has the load balancer "+name+", and Octavia does not")
		}
	}
	return amiss
}

// removeBalancers deletes load balancers, and waits until they are gone. One that Octavia does not touch any more is
// given up by an administrator first.
func (c *cloud) removeBalancers(ctx context.Context, balancers []thing) error {
	ids := map[string]bool{}
	for _, lb := range balancers {
		ids[lb.str("id")] = true
	}
	for began := time.Now(); len(ids) > 0; {
		var errs []error
		for id := range ids {
			_, err := c.call(ctx, http.MethodDelete, "lbaas/loadbalancers/"+id+"?cascade=true", nil)
			switch {
			case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
				delete(ids, id)
			case gophercloud.ResponseCodeIs(err, http.StatusConflict) && time.Since(began) > 20*time.Second:
				errs = append(errs, giveUp(ctx, id))
			case err != nil && !gophercloud.ResponseCodeIs(err, http.StatusConflict):
				errs = append(errs, err)
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("%d load balancers are still there: %w", len(ids), ctx.Err()))...)
		case <-time.After(300 * time.Millisecond):
		}
	}
	return nil
}

// giveUp does what is left to an administrator of a cloud whose Octavia has lost its work: it puts a load balancer
// that stays PENDING_* for good in ERROR, in Octavia's database. No API does that.
func giveUp(ctx context.Context, id string) error {
	if world.stack == nil {
		return fmt.Errorf("load balancer %s stays busy, and its database is not known here", id)
	}
	_, err := world.stack.SQL(ctx, "octavia",
		"UPDATE load_balancer SET provisioning_status = 'ERROR' WHERE provisioning_status LIKE 'PENDING%' AND id = '"+id+"'")
	return err
}

// removeForgotten does the rest of that work: ports that Octavia made for amphorae, and has lost as well, keep their
// network from being deleted. Nobody but an administrator may delete them. What is being made meanwhile is in the
// database before it has a port.
func removeForgotten(ctx context.Context, t *testing.T) error {
	t.Helper()
	if world.stack == nil {
		return errors.New("Octavia's database is not known here: which of its ports it has lost, neither")
	}
	networks, err := world.cloud.list(ctx, "networks", "fields=id&project_id="+world.cloud.project)
	if err != nil {
		return err
	}
	ports, err := world.admin.list(ctx, "ports", "device_owner=Octavia") // they are in Octavia's own project
	if err != nil {
		return err
	}
	rows, err := world.stack.SQL(ctx, "octavia",
		"SELECT a.id FROM amphora a JOIN load_balancer l ON a.load_balancer_id = l.id WHERE l.provisioning_status <> "+
			"'DELETED'")
	if err != nil {
		return err
	}
	for _, port := range ports {
		amphora, ok := strings.CutPrefix(port.str("name"), "octavia-lb-vrrp-")
		here := slices.ContainsFunc(networks, func(n thing) bool { return n.str("id") == port.str("network_id") })
		if !ok || !here || strings.Contains(rows, amphora) {
			continue
		}
		t.Logf("Octavia has lost port %s of amphora %s: an administrator deletes it", port.str("id"), amphora)
		if err := world.admin.remove(ctx, "ports", port.str("id")); err != nil {
			return err
		}
	}
	return nil
}
