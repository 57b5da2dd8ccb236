// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/test/harness"
)

// proxyConf are the options of a site that serves Services by OVN itself.
func proxyConf() harness.Settings {
	return harness.Settings{}.Set("raven", "drivers", "namespace,pod,kubeproxy").Set("ovn", "nb_connection", world.ovnNB).
		Set("neutron_defaults", "external_svc_net", world.external).Set("raven", "drift_check_interval", 10)
}

// proxying is a site of its own with the driver kubeproxy and what conf says beside. Nothing of it is left in OVN at
// its end.
func proxying(t *testing.T, name string, conf harness.Settings) *site {
	t.Helper()
	needPackets(t)
	if world.external == "" {
		lacks(t, "the name of an external network is not known: neither RAVEN_E2E_STACK nor RAVEN_E2E_EXTERNAL is set")
	}
	var s *site
	t.Cleanup(func() { // the last one that runs
		if s != nil {
			s.leavesOVN(t)
		}
	})
	s = own(t, name, proxyConf().With(conf))
	return s
}

// northbound is what OVN has of a site.
type northbound struct {
	balancers []row
	groups    []row
	switches  []row // with a group of the site
	routers   []row
}

// row is one of the northbound database. A map is a map[string]string, a set []string.
type row map[string]any

func (r row) str(column string) string {
	text, _ := r[column].(string)
	return text
}

func (r row) entry(column, key string) string {
	entries, _ := r[column].(map[string]string)
	return entries[key]
}

func (r row) set(column string) []string {
	switch v := r[column].(type) {
	case []string:
		return v
	case string:
		return []string{v}
	}
	return nil
}

// rows reads a table.
func rows(ctx context.Context, table string, columns ...string) ([]row, error) {
	out, err := nbctl(ctx, "--format=json", "--columns=_uuid,"+strings.Join(columns, ","), "list", table)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Headings []string `json:"headings"`
		Data     [][]any  `json:"data"`
	}
	if err := json.Unmarshal([]byte(cmp.Or(out, "{}")), &answer); err != nil {
		return nil, fmt.Errorf("%s of OVN: %w", table, err)
	}
	var all []row
	for _, line := range answer.Data {
		r := row{}
		for i, value := range line {
			r[answer.Headings[i]] = plain(value)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b row) int { return strings.Compare(a.str("_uuid"), b.str("_uuid")) })
	return all, nil
}

// plain reads OVSDB's way to write values in JSON.
func plain(value any) any {
	list, ok := value.([]any)
	if !ok || len(list) != 2 {
		return value
	}
	inner, _ := list[1].([]any)
	switch list[0] {
	case "uuid":
		return list[1]
	case "set":
		out := []string{}
		for _, one := range inner {
			out = append(out, fmt.Sprint(plain(one)))
		}
		slices.Sort(out)
		return out
	case "map":
		out := map[string]string{}
		for _, one := range inner {
			if pair, _ := one.([]any); len(pair) == 2 {
				out[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
			}
		}
		return out
	}
	return value
}

// inNorthbound reads what OVN has of the site.
func (s *site) inNorthbound(ctx context.Context) (northbound, error) {
	var nb northbound
	all, err := rows(ctx, "Load_Balancer", "name", "protocol", "vips", "options", "external_ids")
	if err != nil {
		return nb, err
	}
	for _, r := range all {
		if r.entry("external_ids", "raven:cluster") == s.cluster {
			nb.balancers = append(nb.balancers, r)
		}
	}
	if all, err = rows(ctx, "Load_Balancer_Group", "name", "load_balancer"); err != nil {
		return nb, err
	}
	ids := map[string]bool{}
	for _, r := range all {
		if strings.Contains(r.str("name"), s.cluster) {
			nb.groups = append(nb.groups, r)
			ids[r.str("_uuid")] = true
		}
	}
	for table, into := range map[string]*[]row{"Logical_Switch": &nb.switches, "Logical_Router": &nb.routers} {
		if all, err = rows(ctx, table, "name", "load_balancer_group"); err != nil {
			return nb, err
		}
		for _, r := range all {
			if slices.ContainsFunc(r.set("load_balancer_group"), func(id string) bool { return ids[id] }) {
				*into = append(*into, r)
			}
		}
	}
	return nb, nil
}

// leavesOVN removes with `raven cleanup` what the site leaves in OVN, which is what the cluster's own Services have,
// and the group. Nothing of it may be left, and nothing else may go.
func (s *site) leavesOVN(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	others, err := s.othersInNorthbound(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	conf := filepath.Join(s.dir, "cleanup.conf")
	text := harness.Settings{}.Set("neutron", "cloud", "e2e").Set("neutron", "clouds_file", world.clouds).Set("ovn",
		"nb_connection", world.ovnNB).String()
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Error(err)
		return
	}
	if out, err := program(ctx, "cleanup", "--config-file", conf, "--cluster", s.cluster,
		"--yes").CombinedOutput(); err != nil {
		t.Errorf("raven cleanup: %v: %s", err, out)
	}
	left, err := s.inNorthbound(ctx)
	if err != nil || len(left.balancers)+len(left.groups)+len(left.switches)+len(left.routers) > 0 {
		t.Errorf("left in OVN: %v (%v)", left, err)
	}
	now, err := s.othersInNorthbound(ctx)
	if err != nil || !slices.Equal(now, others) {
		t.Errorf("others' load balancers were %q and are %q (%v)", others, now, err)
	}
}

// othersInNorthbound names the load balancers that are not the site's.
func (s *site) othersInNorthbound(ctx context.Context) ([]string, error) {
	all, err := rows(ctx, "Load_Balancer", "name", "external_ids")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range all {
		if r.entry("external_ids", "raven:cluster") != s.cluster {
			names = append(names, r.str("_uuid")+" "+r.str("name"))
		}
	}
	slices.Sort(names)
	return names, nil
}

// proxiedAmiss says where Services and OVN's load balancers do not agree, and takes from owned what is the Services'.
func (s *site) proxiedAmiss(ctx context.Context, c cluster, owned map[string][]thing) []string {
	nb, err := s.inNorthbound(ctx)
	if err != nil {
		return []string{"OVN cannot be asked: " + err.Error()}
	}
	serving := map[string][]string{} // by the UID of the Service
	for _, r := range nb.balancers {
		_, uid, _ := strings.Cut(r.entry("external_ids", "raven:owner"), ":")
		vips, _ := r["vips"].(map[string]string)
		for vip, backends := range vips {
			list := strings.FieldsFunc(backends, func(r rune) bool { return r == ',' })
			slices.Sort(list)
			serving[uid] = append(serving[uid], fmt.Sprintf("%s %s to %v", strings.ToUpper(r.str("protocol")), vip, list))
		}
	}
	var amiss []string
	for i := range c.services {
		svc := &c.services[i]
		uid := string(svc.GetUID())
		floating, have := owned[uid], serving[uid]
		delete(owned, uid)
		delete(serving, uid)
		if _, theirs := svc.GetLabels()[proxyNameLabel]; theirs && len(have) > 0 {
			amiss = append(amiss,
				fmt.Sprintf("Service %s/%s is another proxy's: OVN has %q", svc.GetNamespace(), svc.GetName(), have))
		}
		if svc.GetDeletionTimestamp() != nil || !c.served(svc) {
			continue
		}
		want, why := c.proxied(svc, floating)
		slices.Sort(want)
		slices.Sort(have)
		if why != "" || !slices.Equal(want, have) {
			amiss = append(amiss,
				fmt.Sprintf("Service %s/%s: OVN has %q and not %q; %s", svc.GetNamespace(), svc.GetName(), have, want, why))
		}
	}
	for uid, have := range serving {
		amiss = append(amiss, fmt.Sprintf("OVN serves what is no more, %s: %q", uid, have))
	}
	return append(amiss, nb.membersAmiss(c, s.dedicated)...)
}

// proxied says what OVN should have for a Service, and what is amiss with its floating IPs: they lead nowhere, for
// OVN has their addresses.
func (c *cluster) proxied(svc *unstructured.Unstructured, owned []thing) (want []string, amiss string) {
	addresses, _, _ := unstructured.NestedStringSlice(svc.Object, "spec", "clusterIPs")
	clusterIPs := len(addresses)
	for _, o := range owned {
		if o["kind"] != "floatingips" {
			amiss += fmt.Sprintf("it has %s; ", describe([]thing{o}))
			continue
		}
		if o.str("port_id") != "" {
			amiss += fmt.Sprintf("floating IP %s leads to port %s; ", o.str("floating_ip_address"), o.str("port_id"))
		}
		if o.token("policy") != "retain" || slices.Contains(externalIPs(svc), o.str("floating_ip_address")) {
			addresses = append(addresses, o.str("floating_ip_address"))
		}
	}
	if text := reachedAmiss(svc, addresses[clusterIPs:]); text != "" {
		amiss += text
	}
	for _, line := range c.wanted(svc) {
		var protocol, port string
		_, members, _ := strings.Cut(line, "[")
		members, _, _ = strings.Cut(members, "]")
		if _, err := fmt.Sscanf(line, "%s %s to", &protocol, &port); err != nil {
			amiss += err.Error()
		}
		for _, address := range addresses {
			want = append(want,
				fmt.Sprintf("%s %s to %v", protocol, net.JoinHostPort(address, port), sameFamily(address, strings.Fields(members))))
		}
	}
	return want, amiss
}

// sameFamily writes those of some members that have the IP version of an address as OVN does.
func sameFamily(address string, members []string) []string {
	list := []string{}
	for _, member := range members {
		i := strings.LastIndex(member, ":")
		if host := member[:i]; strings.Contains(host, ":") == strings.Contains(address, ":") {
			list = append(list, net.JoinHostPort(host, member[i+1:]))
		}
	}
	slices.Sort(list)
	return list
}

// reachedAmiss says whether a Service of type LoadBalancer is not yet reached from outside, or another one is still:
// the cloud alone shows only what was done, not what is to be done yet. Source ranges keep an address and close it,
// so that nothing is said of those.
func reachedAmiss(svc *unstructured.Unstructured, floating []string) string {
	kind, _, _ := unstructured.NestedString(svc.Object, "spec", "type")
	ranges, _, _ := unstructured.NestedStringSlice(svc.Object, "spec", "loadBalancerSourceRanges")
	if len(ranges) > 0 {
		return ""
	}
	var told []string
	list, _, _ := unstructured.NestedSlice(svc.Object, "status", "loadBalancer", "ingress")
	for _, one := range list {
		entry, _ := one.(map[string]any)
		told = append(told, thing(entry).str("ip"))
	}
	mine := slices.DeleteFunc(slices.Clone(floating), func(address string) bool {
		return slices.Contains(externalIPs(svc), address)
	})
	slices.Sort(mine)
	slices.Sort(told)
	if (kind == "LoadBalancer") != (len(mine) == 1) || !slices.Equal(mine, told) {
		return fmt.Sprintf("it is a %s with the floating IPs %v, and its status names %v; ", kind, mine, told)
	}
	return ""
}

func externalIPs(svc *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedStringSlice(svc.Object, "spec", "externalIPs")
	return list
}

// membersAmiss says which load balancers are in no group, and which networks have none: with one group for all, or
// with one for each network where namespaces are apart, each reference is there once.
func (nb northbound) membersAmiss(c cluster, apart bool) []string {
	var amiss []string
	in := map[string]bool{}
	for _, g := range nb.groups {
		for _, id := range g.set("load_balancer") {
			in[id] = true
		}
	}
	for _, r := range nb.balancers {
		if !in[r.str("_uuid")] {
			amiss = append(amiss, "load balancer "+r.str("name")+" is in no group")
		}
	}
	var have, want []string
	for _, sw := range nb.switches {
		have = append(have, sw.str("name"))
	}
	for i := range c.namespaces {
		if id := document(&c.namespaces[i], networkAnnotation).str("id"); id != "" &&
			c.namespaces[i].GetDeletionTimestamp() == nil {
			want = append(want, "neutron-"+id)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	groups := 1
	if apart {
		groups = len(want)
	}
	if len(nb.groups) != groups || len(nb.routers) != groups || !slices.Equal(have, want) {
		amiss = append(amiss,
			fmt.Sprintf("%d groups serve %d routers and the switches %v, not %v", len(nb.groups), len(nb.routers), have, want))
	}
	return amiss
}
