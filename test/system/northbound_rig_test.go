// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kuryr/raven/test/sim/northbound"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// northRig is a rig with OVN's real northbound database, in which the simulated Neutron makes its switches and
// routers, and the drivers for Services of both kinds.
type northRig struct {
	*rig
	north *northbound.Server
}

func newNorthRig(t *testing.T, provider simcloud.Provider) *northRig {
	t.Helper()
	if err := northbound.Available(); err != nil {
		t.Skip(err)
	}
	r := &northRig{rig: newBalancerRig(t, provider)}
	r.install("raven-driver-kubeproxy", "bin/raven-driver-kubeproxy")
	dir := r.path("nb")
	r.check(os.Mkdir(dir, 0o700))
	var err error
	r.north, err = northbound.Start(t.Context(), northbound.Config{Dir: dir})
	r.check(err)
	t.Cleanup(r.north.Kill)
	neutron, err := northbound.Follow(t.Context(), r.cloud, r.north.Unix())
	r.check(err)
	t.Cleanup(func() {
		if err := neutron.Close(); err != nil {
			t.Error(err)
		}
	})
	r.conf.Set("ovn", "nb_connection", r.north.Unix())
	return r
}

// serve sets the driver that serves Services.
func (r *northRig) serve(driver string) { r.conf.Set("raven", "drivers", "namespace,pod,"+driver) }

// northRow is a row of a load balancer, or of what has groups.
type northRow struct {
	id, name, protocol string
	vips               map[string]string
	ids                map[string]string // external
	refs               []string          // to balancers or groups
}

// rows reads a table of the database.
func (r *northRig) rows(table string, columns ...string) []northRow {
	out, err := r.north.Ctl(r.t.Context(), "--format=json", "--columns=_uuid,name,"+strings.Join(columns, ","), "list",
		table)
	if err != nil {
		if r.t.Context().Err() == nil {
			r.t.Error(err)
		}
		return nil
	}
	var answer struct {
		Headings []string `json:"headings"`
		Data     [][]any  `json:"data"`
	}
	if out == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		r.t.Errorf("%s: %v", table, err)
	}
	rows := make([]northRow, 0, len(answer.Data))
	for _, line := range answer.Data {
		var row northRow
		for i, heading := range answer.Headings {
			switch heading {
			case "_uuid":
				row.id = atoms(line[i])[0]
			case "name":
				row.name, _ = line[i].(string)
			case "protocol":
				row.protocol = strings.ToUpper(strings.Join(atoms(line[i]), ""))
			case "vips":
				row.vips = pairs(line[i])
			case "external_ids":
				row.ids = pairs(line[i])
			default:
				row.refs = atoms(line[i])
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// atoms and pairs read OVSDB's way to write sets and maps in JSON.
func atoms(value any) []string {
	list, ok := value.([]any)
	if !ok {
		return []string{fmt.Sprint(value)}
	}
	if list[0] == "uuid" {
		return []string{fmt.Sprint(list[1])}
	}
	inner, _ := list[1].([]any)
	out := []string{}
	for _, one := range inner {
		out = append(out, atoms(one)...)
	}
	return out
}

func pairs(value any) map[string]string {
	out := map[string]string{}
	list, _ := value.([]any)
	if len(list) != 2 {
		return out
	}
	inner, _ := list[1].([]any)
	for _, one := range inner {
		if pair, _ := one.([]any); len(pair) == 2 {
			out[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
	}
	return out
}

func (r *northRig) balancerRows() []northRow {
	return r.rows("Load_Balancer", "protocol", "vips", "external_ids")
}

// proxiedAmiss says where Services and OVN's load balancers do not agree, or what of Octavia's is there beside.
func (r *northRig) proxiedAmiss() string {
	serving := map[string][]string{}
	for _, row := range r.balancerRows() {
		_, uid, _ := strings.Cut(row.ids["raven:owner"], ":")
		for vip, backends := range row.vips {
			list := strings.FieldsFunc(backends, func(r rune) bool { return r == ',' })
			slices.Sort(list)
			serving[uid] = append(serving[uid], fmt.Sprintf("%s %s → %v", row.protocol, vip, list))
		}
	}
	list, err := r.kube.List(services(), "")
	r.check(err)
	var amiss []string
	for _, svc := range list {
		uid := fmt.Sprint(at(svc, "metadata", "uid"))
		want := r.wantedVIPs(svc)
		have := serving[uid]
		delete(serving, uid)
		slices.Sort(have)
		if !slices.Equal(want, have) {
			amiss = append(amiss, fmt.Sprintf("Service %v should have %q and has %q", at(svc, "metadata", "name"), want, have))
		}
	}
	if len(serving) > 0 {
		amiss = append(amiss, fmt.Sprintf("OVN serves what is no more: %v", serving))
	}
	if n := len(r.cloud.LoadBalancers()); n > 0 {
		amiss = append(amiss, fmt.Sprintf("%d load balancers of Octavia's", n))
	}
	for _, fip := range r.cloud.FloatingIPs() {
		if fip["port_id"] != nil {
			amiss = append(amiss, fmt.Sprintf("floating IP %v leads to a port", fip["floating_ip_address"]))
		}
	}
	return strings.Join(append(amiss, r.groupAmiss()...), "; ")
}

// wantedVIPs says what OVN should have for a Service: its ports at the clusterIP, at what its status names and at its
// externalIPs.
func (r *northRig) wantedVIPs(svc object) []string {
	vip := fmt.Sprint(at(svc, "spec", "clusterIP"))
	if vip == "None" || at(svc, "spec", "type") == "ExternalName" {
		return nil
	}
	addresses := append([]string{vip}, texts(at(svc, "spec", "externalIPs"))...)
	ingress, _ := at(svc, "status", "loadBalancer", "ingress").([]any)
	for _, one := range ingress {
		addresses = append(addresses, fmt.Sprint(at(one, "ip")))
	}
	if at(svc, "spec", "type") == "LoadBalancer" && len(ingress) != 1 {
		addresses = append(addresses, "an address in the status")
	}
	var want []string
	for part := range strings.SplitSeq(r.wantedParts(svc), ", ") {
		var protocol, port string
		if _, err := fmt.Sscanf(part, "%s %s →", &protocol, &port); err != nil {
			r.t.Fatalf("%q: %v", part, err)
		}
		_, members, _ := strings.Cut(part, "→ ")
		for _, address := range addresses {
			want = append(want, fmt.Sprintf("%s %s → %s", protocol, net.JoinHostPort(address, port), members))
		}
	}
	slices.Sort(want)
	return want
}

// groupAmiss says where the group is not what every load balancer is in, and every namespace's switch and the router
// refer to.
func (r *northRig) groupAmiss() []string {
	if r.conf["namespace_subnet"]["topology"] == "dedicated" {
		return r.apartAmiss()
	}
	groups := r.rows("Load_Balancer_Group", "load_balancer")
	if len(groups) != 1 {
		return []string{fmt.Sprintf("%d groups", len(groups))}
	}
	var amiss []string
	for _, row := range r.balancerRows() {
		if !slices.Contains(groups[0].refs, row.id) {
			amiss = append(amiss, row.name+" is not in the group")
		}
	}
	for _, table := range []string{"Logical_Switch", "Logical_Router"} {
		for _, row := range r.rows(table, "load_balancer_group") {
			if want := r.grouped(row.name); want != slices.Contains(row.refs, groups[0].id) {
				amiss = append(amiss, fmt.Sprintf("%s %s is in the group: %t", table, row.name, !want))
			}
		}
	}
	return amiss
}

// apartAmiss says where the groups are not those of namespaces apart: one for each, with its load balancers, its
// switch and its router.
func (r *northRig) apartAmiss() []string {
	// the group's name by the id of a load balancer's row, and by its own
	in, title := map[string]string{}, map[string]string{}
	for _, group := range r.rows("Load_Balancer_Group", "load_balancer") {
		_, name, _ := strings.Cut(group.name, " name=")
		title[group.id] = name
		for _, id := range group.refs {
			in[id] = name
		}
	}
	var amiss []string
	for _, row := range r.balancerRows() {
		if ns, _, _ := strings.Cut(row.name, "/"); in[row.id] != ns+"-services" {
			amiss = append(amiss, fmt.Sprintf("%s is in group %q", row.name, in[row.id]))
		}
	}
	names := map[string]string{}
	for _, n := range r.cloud.Networks() {
		names["neutron-"+fmt.Sprint(n["id"])] = fmt.Sprint(n["name"])
	}
	joined := 0
	for _, row := range r.rows("Logical_Switch", "load_balancer_group") {
		for _, id := range row.refs {
			if title[id] != names[row.name]+"-services" {
				amiss = append(amiss, fmt.Sprintf("the switch of %s has the group %q", names[row.name], title[id]))
			}
			joined++
		}
	}
	routers := map[string]bool{}
	for _, row := range r.rows("Logical_Router", "load_balancer_group") {
		for _, id := range row.refs {
			routers[title[id]] = true
		}
	}
	list, err := r.kube.List(namespaces(), "")
	r.check(err)
	list = slices.DeleteFunc(list, excluded)
	if len(title) != len(list) || joined != len(list) || len(routers) != len(list) {
		amiss = append(amiss,
			fmt.Sprintf("of %d namespaces %d have a group, %d switches and %d routers", len(list), len(title), joined,
				len(routers)))
	}
	return amiss
}

// grouped says whether a switch or router belongs in the group: those of namespaces, and Raven's router.
func (r *northRig) grouped(name string) bool {
	for _, n := range r.cloud.Networks() {
		if name == "neutron-"+fmt.Sprint(n["id"]) {
			return n["name"] != "public" && n["name"] != "raven-default-service"
		}
	}
	return true
}

// floatingIDs are the ids of the floating IPs by address.
func (r *northRig) floatingIDs() map[string]string {
	ids := map[string]string{}
	for _, fip := range r.cloud.FloatingIPs() {
		ids[fmt.Sprint(fip["floating_ip_address"])] = fmt.Sprint(fip["id"])
	}
	return ids
}

// onlyOne checks all the time, until it is ended, that never a load balancer of Octavia's and one of OVN's serve one
// address, and, where OVN's are on their way out, that they serve as long as they are there.
func (r *northRig) onlyOne(leaving bool) (end func()) {
	stop := make(chan struct{})
	var work sync.WaitGroup
	octavias := func() map[string]bool {
		addresses, ports := map[string]bool{}, map[string]bool{}
		for _, lb := range r.cloud.LoadBalancers() {
			addresses[fmt.Sprint(lb["vip_address"])] = true
			ports[fmt.Sprint(lb["vip_port_id"])] = true
		}
		for _, fip := range r.cloud.FloatingIPs() {
			if ports[fmt.Sprint(fip["port_id"])] {
				addresses[fmt.Sprint(fip["floating_ip_address"])] = true
			}
		}
		return addresses
	}
	work.Go(func() {
		for {
			before := octavias()
			rows := r.balancerRows()
			if idle := r.idle(rows); leaving && idle != "" {
				r.t.Error(idle)
				return
			}
			after := octavias()
			for _, row := range rows {
				for vip := range row.vips {
					host, _, _ := net.SplitHostPort(vip)
					if before[host] && after[host] {
						r.t.Errorf("Octavia and OVN both serve %s", host)
						return
					}
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		work.Wait()
	})
}

// idle names a load balancer that is there and in no group of a switch, so that it serves no client.
func (r *northRig) idle(before []northRow) string {
	if len(before) == 0 {
		return ""
	}
	in := map[string]bool{}
	joined := map[string]bool{}
	for _, row := range r.rows("Logical_Switch", "load_balancer_group") {
		for _, id := range row.refs {
			joined[id] = true
		}
	}
	for _, group := range r.rows("Load_Balancer_Group", "load_balancer") {
		for _, id := range group.refs {
			in[id] = in[id] || joined[group.id]
		}
	}
	for _, row := range r.balancerRows() {
		if !in[row.id] && slices.ContainsFunc(before, func(b northRow) bool { return b.id == row.id }) {
			return row.name + " is in no group of a switch"
		}
	}
	return ""
}

func (r *northRig) awaitProxied(p *raven) {
	r.t.Helper()
	must(r.t, "OVN's load balancers", func() string {
		if amiss := r.proxiedAmiss(); amiss != "" {
			return amiss + "; " + p.settled()
		}
		return r.amiss(p)
	})
}
