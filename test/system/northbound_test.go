package system_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr/raven/test/sim/northbound"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// northRig is a rig with OVN's real northbound database, in which the simulated Neutron makes its switches and routers, and the drivers
// for Services of both kinds.
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
	r.conf.set("ovn", "nb_connection", r.north.Unix())
	return r
}

// serve sets the driver that serves Services.
func (r *northRig) serve(driver string) { r.conf.set("raven", "drivers", "namespace,pod,"+driver) }

// northRow is a row of a load balancer, or of what has groups.
type northRow struct {
	id, name, protocol string
	vips               map[string]string
	ids                map[string]string // external
	refs               []string          // to balancers or groups
}

// rows reads a table of the database.
func (r *northRig) rows(table string, columns ...string) []northRow {
	out, err := r.north.Ctl(r.t.Context(), "--format=json", "--columns=_uuid,name,"+strings.Join(columns, ","), "list", table)
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

// wantedVIPs says what OVN should have for a Service: its ports at the clusterIP, at what its status names and at its externalIPs.
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

// groupAmiss says where the group is not what every load balancer is in, and every namespace's switch and the router refer to.
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

// apartAmiss says where the groups are not those of namespaces apart: one for each, with its load balancers, its switch and its router.
func (r *northRig) apartAmiss() []string {
	in, title := map[string]string{}, map[string]string{} // the group's name by the id of a load balancer's row, and by its own
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
	if len(title) != len(list) || joined != len(list) || len(routers) != len(list) {
		amiss = append(amiss, fmt.Sprintf("of %d namespaces %d have a group, %d switches and %d routers", len(list), len(title), joined, len(routers)))
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

// onlyOne looks all the time, until it is ended, that never a load balancer of Octavia's and one of OVN's serve one address, and, where OVN's
// are on their way out, that they serve as long as they are there.
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

// idle names a load balancer that is there and in no group of a switch, so that it serves nobody.
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

// TestKubeProxyServesByOVN has the driver kubeproxy serve Services in the northbound database: all of them, as they are, without Octavia,
// and nothing is left of those that go.
func TestKubeProxyServesByOVN(t *testing.T) {
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 3)
	r.createService("shop", "web", both())
	r.createService("shop", "lonely", nil)
	r.createService("shop", "headless", object{"clusterIP": "None"})
	r.floatingIP("172.24.4.77")
	r.createService("shop", "outside", object{"type": "LoadBalancer", "externalIPs": []any{"172.24.4.77"}, "selector": object{"app": "web"}})
	r.awaitProxied(p)
	r.scale("shop", "web", 1)
	r.awaitProxied(p)
	r.scale("shop", "web", 0)
	r.awaitProxied(p)
	r.scale("shop", "web", 2)
	r.awaitProxied(p)

	before, writes := r.balancerRows(), r.cloud.Stats().Writes
	p.stop()
	p = r.start()
	r.awaitProxied(p)
	if n := r.cloud.Stats().Writes - writes; n != 0 || !slices.EqualFunc(before, r.balancerRows(), sameRow) {
		t.Errorf("a restart made %d writes; the rows were %v and are %v", n, before, r.balancerRows())
	}

	r.deleteNamespace("shop")
	must(t, "nothing of the namespace", func() string {
		for _, row := range r.balancerRows() {
			if strings.HasPrefix(row.name, "shop/") {
				return row.name + " is left; " + p.settled()
			}
		}
		if amiss := r.proxiedAmiss(); amiss != "" {
			return amiss
		}
		return r.amiss(p)
	})
	p.stop()
}

func sameRow(a, b northRow) bool {
	return a.id == b.id && a.name == b.name && a.protocol == b.protocol && maps.Equal(a.vips, b.vips) && maps.Equal(a.ids, b.ids)
}

// TestServicesAreHandedOver changes the driver of a running cluster from lbaas to kubeproxy and back, by a restart and by a reload, which brings the
// database as well: floating IPs stay what they are, and never do both serve one address.
func TestServicesAreHandedOver(t *testing.T) {
	restart := func(r *northRig, p *raven) *raven {
		p.stop()
		return r.start()
	}
	for _, tc := range []struct {
		name     string
		provider simcloud.Provider
		topology string
		late     bool // the database is configured with the driver that needs it, and only as long
		change   func(*northRig, *raven) *raven
	}{
		{name: "amphora, by a restart", provider: simcloud.Amphora(brief()), change: restart},
		{name: "ovn, by a reload", provider: simcloud.OVN(brief()), late: true, change: func(r *northRig, p *raven) *raven {
			r.configure()
			p.signal(syscall.SIGHUP)
			return p
		}},
		{name: "namespaces apart", provider: simcloud.OVN(brief()), topology: "dedicated", change: restart},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newNorthRig(t, tc.provider)
			r.serve("lbaas")
			if tc.topology != "" {
				r.conf.set("namespace_subnet", "topology", tc.topology)
			}
			if tc.late {
				delete(r.conf["ovn"], "nb_connection")
			}
			p := r.start()
			r.createNamespace("shop")
			r.scale("shop", "web", 2)
			r.floatingIP("172.24.4.77")
			r.createService("shop", "web", both())
			for i := range 3 {
				r.createService("shop", fmt.Sprintf("outside-%d", i), object{"type": "LoadBalancer", "selector": object{"app": "web"}})
			}
			r.createService("shop", "named", object{"externalIPs": []any{"172.24.4.77"}, "selector": object{"app": "web"}})
			r.awaitServices(p)
			floating := r.floatingIDs()
			shown := r.ingresses()
			for _, driver := range []string{"kubeproxy", "lbaas"} {
				began, end := time.Now(), func() {}
				if driver == "kubeproxy" {
					r.north.Kill()
					r.conf.set("ovn", "nb_connection", r.north.Unix())
				} else {
					end = r.onlyOne(true)
				}
				r.serve(driver)
				if driver == "lbaas" && tc.late {
					r.databaseStays(p)
				}
				p = tc.change(r, p)
				if driver == "kubeproxy" { // Octavia's serve on until OVN's can
					must(t, "Services that wait for the database", func() string { return r.balancersStay(p, len(shown)) })
					r.check(r.north.Run(t.Context()))
					began, end = time.Now(), r.onlyOne(false)
				}
				defer end()
				if driver == "kubeproxy" {
					r.awaitProxied(p)
				} else {
					r.awaitServices(p)
					if rows := r.balancerRows(); len(rows) > 0 {
						t.Errorf("OVN still has %v", rows)
					}
					if groups := r.rows("Load_Balancer_Group", "load_balancer"); len(groups) > 0 {
						t.Errorf("OVN still has %v", groups)
					}
				}
				gaps := p.gaps(driver)
				t.Logf("to %s: all within %s; without a load balancer were %v", driver, time.Since(began).Round(time.Millisecond), gaps)
				if len(gaps) != len(shown) {
					t.Errorf("to %s: %d Services were handed over, not %d", driver, len(gaps), len(shown))
				}
				end()
				if now := r.floatingIDs(); !maps.Equal(floating, now) {
					t.Errorf("with %s the floating IPs are %v; they were %v", driver, now, floating)
				}
				if now := r.ingresses(); !slices.Equal(shown, now) {
					t.Errorf("with %s the status names %v; it was %v", driver, now, shown)
				}
			}
			if tc.late { // now nothing is left there
				delete(r.conf["ovn"], "nb_connection")
				p = tc.change(r, p)
				must(t, "a reload without the database", func() string {
					if page := p.page("/readyz"); strings.Contains(page, "ovn: ") || !strings.Contains(page, "ready     raven\n") {
						return page
					}
					return r.servicesAmiss(p)
				})
			}
			p.stop()
		})
	}
}

// databaseStays shows that a reload without the database is refused while OVN serves: nobody would see its load balancers then.
func (r *northRig) databaseStays(p *raven) {
	r.t.Helper()
	delete(r.conf["ovn"], "nb_connection")
	r.configure()
	p.signal(syscall.SIGHUP)
	must(r.t, "a reload that is refused", func() string {
		if page := p.page("/readyz"); !strings.Contains(page, "degraded  raven: ") || !strings.Contains(page, "[ovn] nb_connection is not in it any more") {
			return page
		}
		return ""
	})
	if n := len(r.cloud.LoadBalancers()); n > 0 {
		r.t.Errorf("Octavia has %d load balancers beside OVN's", n)
	}
	r.conf.set("ovn", "nb_connection", r.north.Unix())
}

// balancersStay says where Octavia does not serve all Services, as it did, though none of them can be handed over.
func (r *northRig) balancersStay(p *raven, services int) string {
	s, err := p.status()
	if err != nil {
		return err.Error()
	}
	waiting := 0
	for _, o := range s.Objects {
		if o.Kind == "Service" && o.Driver == "kubeproxy" && o.State != "done" && o.State != "pending" {
			waiting++
		}
	}
	if amiss := r.balancersAmiss(); amiss != "" {
		r.t.Errorf("while OVN's database is away: %s", amiss)
	}
	if !s.Ready || waiting != services || s.Handover.Waiting != services {
		return fmt.Sprintf("%d of %d Services wait, %d of them to be handed over", waiting, services, s.Handover.Waiting)
	}
	told := fmt.Sprintf("%d Services wait to be handed over, and their old load balancers serve on with the endpoints of ", services)
	if page := p.page("/readyz"); !strings.Contains(page, "degraded  ovn: ") || !strings.Contains(page, told) {
		return "/readyz does not say that they wait:\n" + page
	}
	return ""
}

// gaps are the times for which Services had no load balancer when they were handed over to a driver, as raven's log tells.
func (p *raven) gaps(driver string) map[string]string {
	to := map[string]string{"kubeproxy": "ovn_loadbalancer", "lbaas": "loadbalancer"}[driver]
	gaps := map[string]string{}
	for _, found := range handedOver.FindAllStringSubmatch(p.log.String(), -1) {
		if found[2] == to {
			gaps[found[1]] = found[3]
		}
	}
	return gaps
}

var handedOver = regexp.MustCompile(`handed over object="([^"]+)" to=(\w+) gap=(\S+)`)

// ingresses are the addresses that the status of Services names.
func (r *northRig) ingresses() []string {
	list, err := r.kube.List(services(), "")
	r.check(err)
	var out []string
	for _, svc := range list {
		out = append(out, fmt.Sprintf("%v %v", at(svc, "metadata", "name"), at(svc, "status", "loadBalancer", "ingress")))
	}
	slices.Sort(out)
	return out
}

// TestAddressThatCannotBeLimitedIsClosed: OVN's load balancers know no source ranges, so that the address of a Service that has some serves
// nobody. It is not given away meanwhile, and serves again without them.
func TestAddressThatCannotBeLimitedIsClosed(t *testing.T) {
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 2)
	r.createService("shop", "web", object{"type": "LoadBalancer"})
	r.awaitProxied(p)
	floating := r.floatingIDs()
	for _, ranges := range []string{`["203.0.113.0/24"]`, `["everybody"]`} {
		r.patchService("shop", "web", fmt.Sprintf(`{"spec":{"loadBalancerSourceRanges":%s}}`, ranges))
		must(t, "a closed address", func() string {
			for _, row := range r.balancerRows() {
				for vip := range row.vips {
					if host, _, _ := net.SplitHostPort(vip); floating[host] != "" {
						return vip + " is served"
					}
				}
			}
			svc, err := r.kube.Get(services(), "shop", "web")
			r.check(err)
			if list, _ := at(svc, "status", "loadBalancer", "ingress").([]any); len(list) > 0 {
				return fmt.Sprintf("the status names %v", list)
			}
			if !strings.Contains(strings.Join(r.events(), "\n"), "SourceRangesNotEnforced") {
				return "no Event says so"
			}
			return r.amiss(p)
		})
		if now := r.floatingIDs(); !maps.Equal(floating, now) {
			t.Errorf("with %s the floating IPs are %v; they were %v", ranges, now, floating)
		}
		r.patchService("shop", "web", `{"spec":{"loadBalancerSourceRanges":null}}`)
		r.awaitProxied(p)
		if now := r.floatingIDs(); !maps.Equal(floating, now) {
			t.Errorf("after %s the floating IPs are %v; they were %v", ranges, now, floating)
		}
	}
	p.stop()
}

// TestKubeProxyKeepsNamespacesApart: in the dedicated topology a Service is served in its own namespace, and nowhere else.
func TestKubeProxyKeepsNamespacesApart(t *testing.T) {
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	r.conf.set("namespace_subnet", "topology", "dedicated")
	p := r.start()
	for _, ns := range []string{"shop", "bank"} {
		r.createNamespace(ns)
		r.scale(ns, "web", 2)
		r.createService(ns, "web", nil)
	}
	must(t, "a group for each namespace", func() string {
		if amiss := r.apartAmiss(); len(amiss) > 0 {
			return strings.Join(amiss, "; ")
		}
		return p.settled()
	})
	p.stop()
}

// TestKubeProxyOutlivesKills kills raven, its driver and the database in turn while endpoints come and go.
func TestKubeProxyOutlivesKills(t *testing.T) {
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 2)
	r.createService("shop", "web", both())
	r.awaitProxied(p)
	for i, kill := range []func(){
		func() {
			p.kill()
			r.scale("shop", "web", 4)
			p = r.start()
		},
		func() { r.check(syscall.Kill(p.plugin("kubeproxy"), syscall.SIGKILL)) },
		func() {
			r.north.Kill()
			r.scale("shop", "web", 1)
			r.check(r.north.Run(t.Context()))
		},
	} {
		late := fmt.Sprintf("late-%d", i)
		r.scale("shop", "web", 3)
		r.createService("shop", late, object{"selector": object{"app": "web"}})
		kill()
		r.scale("shop", "web", 2)
		r.awaitProxied(p)
		r.deleteService("shop", late)
		r.awaitProxied(p)
	}
	p.stop()
}
