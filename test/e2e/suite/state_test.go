// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// cluster is what Kubernetes says.
type cluster struct {
	namespaces, pods, services, slices []unstructured.Unstructured
}

func look(ctx context.Context) (cluster, error) {
	spaces, err := namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cluster{}, err
	}
	list, err := pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return cluster{}, err
	}
	served, err := serviceObjects("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return cluster{}, err
	}
	endpoints, err := endpointSlices("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return cluster{}, err
	}
	selected := slices.DeleteFunc(spaces.Items, func(ns unstructured.Unstructured) bool {
		return ns.GetName() == "kube-public" || ns.GetName() == "kube-node-lease" // [namespace_subnet] excluded_namespaces
	})
	return cluster{selected, list.Items, served.Items, endpoints.Items}, nil
}

// wantsPort says whether a pod should have a port.
func wantsPort(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	host, _, _ := unstructured.NestedBool(pod.Object, "spec", "hostNetwork")
	return phase != "Succeeded" && phase != "Failed" && !host
}

// amiss says where the cloud and the cluster do not agree, "" where they do: every namespace and every pod has
// exactly what it should have, its annotations tell of that, and nothing belongs to an object that is no more. The
// cluster is asked first: it is cheap.
func (s *site) amiss(ctx context.Context) string {
	if s.raven != nil {
		if why := s.raven.died(); why != "" {
			return why
		}
	}
	c, err := look(ctx)
	if err != nil {
		return "the cluster cannot be asked: " + err.Error()
	}
	if waiting := s.unannotated(c); waiting != "" {
		return waiting
	}
	all, err := world.cloud.ours(ctx, s.cluster)
	if err != nil {
		return "the cloud cannot be asked: " + err.Error()
	}
	owned := map[string][]thing{} // by UID, "shared"
	for _, o := range all {
		owned[o.of()] = append(owned[o.of()], o)
	}
	var amiss []string
	for i := range c.namespaces {
		ns := &c.namespaces[i]
		amiss = append(amiss, s.namespaceAmiss(ns, owned[string(ns.GetUID())])...)
		delete(owned, string(ns.GetUID()))
	}
	for i := range c.pods {
		pod := &c.pods[i]
		amiss = append(amiss, s.podAmiss(pod, owned[string(pod.GetUID())])...)
		delete(owned, string(pod.GetUID()))
	}
	amiss = append(amiss, s.sharedAmiss(owned["shared"])...)
	delete(owned, "shared")
	if s.balances {
		amiss = append(amiss, servicesAmiss(ctx, c, owned)...)
	}
	if s.proxies {
		amiss = append(amiss, s.proxiedAmiss(ctx, c, owned)...)
	}
	if err := policiesOwn(ctx, owned); err != nil {
		return "the cluster cannot be asked: " + err.Error()
	}
	for _, of := range slices.Sorted(maps.Keys(owned)) {
		amiss = append(amiss, "of an object that is no more: "+strings.Join(describe(owned[of]), ", "))
	}
	if len(amiss) > 12 {
		amiss = append(amiss[:12], fmt.Sprintf("and %d more", len(amiss)-12))
	}
	return strings.Join(amiss, "; ")
}

// unannotated names objects whose annotations are not there yet, or are those that another site left.
func (s *site) unannotated(c cluster) string {
	var amiss []string
	for i := range c.namespaces {
		if ns := &c.namespaces[i]; ns.GetDeletionTimestamp() == nil && s.missing(document(ns, networkAnnotation)) {
			amiss = append(amiss, "namespace "+ns.GetName())
		}
	}
	for i := range c.pods {
		pod := &c.pods[i]
		if wantsPort(pod) && pod.GetDeletionTimestamp() == nil && s.missing(document(pod, portAnnotation)) {
			amiss = append(amiss, "pod "+pod.GetNamespace()+"/"+pod.GetName())
		}
	}
	for i := range c.services {
		if svc := &c.services[i]; s.balances && svc.GetDeletionTimestamp() == nil && c.served(svc) &&
			document(svc, vipAnnotation) == nil {
			amiss = append(amiss, "Service "+svc.GetNamespace()+"/"+svc.GetName())
		}
	}
	if len(amiss) == 0 {
		return ""
	}
	return fmt.Sprintf("%d objects have no annotation of this site's yet: %s", len(amiss),
		strings.Join(amiss[:min(len(amiss), 8)], ", "))
}

// policiesOwn leaves out what belongs to NetworkPolicies that there are.
func policiesOwn(ctx context.Context, owned map[string][]thing) error {
	list, err := networkPoliciesOf("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		delete(owned, string(list.Items[i].GetUID()))
	}
	return nil
}

func (s *site) missing(annotated thing) bool { return annotated == nil || s.stale[annotated.str("id")] }

// one returns the only resource of that kind and logical name, and says when there is none or more.
func one(owned []thing, kind, name, of string) (thing, string) {
	var found []thing
	for _, o := range owned {
		if o["kind"] == kind && o.token("name") == name {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Sprintf("%s has %d of %s %q", of, len(found), kind, name)
	}
	return found[0], ""
}

// suffix is that of the names of a family's resources.
func suffix(family string) string {
	if family == "6" {
		return "-v6"
	}
	return ""
}

func (s *site) namespaceAmiss(ns *unstructured.Unstructured, owned []thing) []string {
	of := "namespace " + ns.GetName()
	var amiss []string
	need := func(kind, name string) thing {
		o, text := one(owned, kind, name, of)
		if text != "" {
			amiss = append(amiss, text)
		}
		return o
	}
	network, group := need("networks", "network"), need("security-groups", "security-group")
	wanted := 2
	var first thing
	for _, family := range s.families {
		subnet := need("subnets", "subnet"+suffix(family))
		rif := need("ports", "rif.router-interface"+suffix(family))
		wanted += 2
		if first == nil {
			first = subnet
		}
		if subnet == nil || rif == nil {
			continue
		}
		if subnet.str("network_id") != network.str("id") || fmt.Sprint(subnet["ip_version"]) != family {
			amiss = append(amiss, of+": its subnet is another network's, or of another IP version")
		}
		if rif.str("device_id") == "" || !slices.Equal(rif.addresses(), []string{subnet.str("gateway_ip")}) {
			amiss = append(amiss,
				fmt.Sprintf("%s: its subnet's gateway %s is not the router's %v", of, subnet.str("gateway_ip"), rif.addresses()))
		}
	}
	for _, o := range owned { // where NetworkPolicies are kept
		if name := o.token("name"); name == "open-in" || name == "open-out" || name == "members" {
			wanted++
		}
	}
	for _, o := range owned { // further subnets of one that was full, each with its interface
		if name := o.token("name"); strings.HasPrefix(name, "subnet.") || strings.HasPrefix(name, "rif.router-interface.") {
			wanted++
		}
	}
	if s.dedicated {
		need("routers", "router")
		wanted++
		for _, o := range owned {
			if strings.Contains(o.token("name"), "service-") {
				wanted++
			}
		}
	}
	if len(amiss) == 0 && len(owned) != wanted {
		amiss = append(amiss,
			fmt.Sprintf("%s has %d resources, not %d: %s", of, len(owned), wanted, strings.Join(describe(owned), ", ")))
	}
	for annotation, o := range map[string]thing{
		networkAnnotation: network, subnetAnnotation: first, groupAnnotation: group,
	} {
		if told := document(ns, annotation).str("id"); o != nil && told != o.str("id") {
			amiss = append(amiss, fmt.Sprintf("%s: annotation %s tells of %q, and it is %s", of, annotation, told, o.str("id")))
		}
	}
	if o := network; o != nil && o.str("name") != ns.GetName() {
		amiss = append(amiss, fmt.Sprintf("%s: its network's name is %q", of, o.str("name")))
	}
	if o := group; o != nil && len(ownRules(o)) != 4 {
		amiss = append(amiss, fmt.Sprintf("%s: its security group has %d rules for all ports, not 4", of, len(ownRules(o))))
	}
	return amiss
}

func (s *site) podAmiss(pod *unstructured.Unstructured, owned []thing) []string {
	of := "pod " + pod.GetNamespace() + "/" + pod.GetName()
	told := document(pod, portAnnotation)
	if !wantsPort(pod) {
		if len(owned) > 0 || told != nil {
			return []string{fmt.Sprintf("%s should have no port; it has %d and tells of %q", of, len(owned), told.str("id"))}
		}
		return nil
	}
	if len(owned) != 1 || owned[0]["kind"] != "ports" {
		return []string{fmt.Sprintf("%s should have one port, and has: %s", of, strings.Join(describe(owned), ", "))}
	}
	port := owned[0]
	var amiss []string
	check := func(what string, have, want any) {
		if fmt.Sprint(have) != fmt.Sprint(want) {
			amiss = append(amiss, fmt.Sprintf("%s: %s is %v, not %v", of, what, have, want))
		}
	}
	check("the annotated port", told.str("id"), port.str("id"))
	check("the annotated MAC address", told.str("mac_address"), port.str("mac_address"))
	check("the annotated address", told.addresses(), port.addresses())
	check("device_id", port.str("device_id"), pod.GetUID())
	check("device_owner", port.str("device_owner"), "compute:kuryr")
	check("the name", port.str("name"), pod.GetName())
	var versions []string
	for _, address := range port.addresses() {
		if a, err := netip.ParseAddr(address); err == nil && a.Is4() {
			versions = append(versions, "4")
		} else if err == nil {
			versions = append(versions, "6")
		}
	}
	slices.Sort(versions)
	check("the IP versions", versions, s.families)
	if label, ok := pod.GetLabels()[groupLabel]; ok {
		check("the security group", port.strs("security_groups"), []string{label})
	}
	check("the security groups in the annotation", told.strs("security_groups"), port.strs("security_groups"))
	return amiss
}

// sharedAmiss checks what the cluster has once. Doubles are what to look for.
func (s *site) sharedAmiss(owned []thing) []string {
	count := map[string]int{}
	for _, o := range owned {
		count[o.str("kind")+" "+o.token("name")]++
	}
	var amiss []string
	for _, what := range slices.Sorted(maps.Keys(count)) {
		if count[what] != 1 {
			amiss = append(amiss, fmt.Sprintf("the cluster has %d of %s", count[what], what))
		}
	}
	if !s.dedicated && count["routers router"] != 1 {
		amiss = append(amiss, "the cluster has no router")
	}
	return amiss
}

// dump is everything of the site in the cloud, as sorted lines without what differs from run to run. Given a
// renaming, it has only what belongs to objects whose names that knows.
func (s *site) dump(ctx context.Context, rename map[string]string) (string, error) {
	all, err := world.cloud.ours(ctx, s.cluster)
	if err != nil {
		return "", err
	}
	names := map[string]string{} // of everything that has an id
	for _, o := range all {
		names[o.str("id")] = o.token("owner") + "/" + o.token("name")
		if port := o.str("vip_port_id"); port != "" {
			names[port] = "VIP of " + names[o.str("id")]
		}
	}
	var lines []string
	for _, o := range all {
		if _, known := rename[o.of()]; rename != nil && !known {
			continue
		}
		line := fmt.Sprintf("%s %s: name=%s", o.str("kind"), names[o.str("id")], o.str("name"))
		for _, key := range []string{
			"network_id", "subnetpool_id", "device_id", "security_groups", "ip_version", "enable_dhcp", "device_owner",
			"admin_state_up", "port_security_enabled", "shared", "router:external", "mtu", "dns_nameservers", "host_routes",
			"tags",
			"provider", "provisioning_status", "vip_subnet_id", "additional_vips", "port_id",
		} {
			if value := fmt.Sprint(o[key]); o[key] != nil {
				for id, name := range names {
					value = strings.ReplaceAll(value, id, name)
				}
				line += " " + key + "=" + value
			}
		}
		for _, ip := range o.things("fixed_ips") {
			line += " in=" + names[ip.str("subnet_id")]
		}
		var rules []string
		for _, r := range o.things("security_group_rules") {
			rules = append(rules, fmt.Sprint(r["direction"], r["ethertype"], r["protocol"], r["remote_ip_prefix"]))
		}
		sort.Strings(rules)
		lines = append(lines, fmt.Sprintf("%s rules=%v", line, rules))
		if o["kind"] == balancerKind {
			parts, err := partsOf(ctx, o)
			if err != nil {
				return "", err
			}
			for _, part := range parts.lines() {
				lines = append(lines, names[o.str("id")]+" has "+part)
			}
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	for old, now := range rename {
		text = strings.ReplaceAll(text, old, now)
	}
	lines = strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

// ownRules are the rules that a namespace's security group has by itself: those for the ports of Services are not
// among them.
func ownRules(group thing) []thing {
	return slices.DeleteFunc(group.things("security_group_rules"), func(rule thing) bool {
		return rule["port_range_min"] != nil
	})
}
