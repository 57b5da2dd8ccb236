// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/networkpolicy/semantics"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/plan"
)

// maxDifferences is how many connections are shown where all pods are compared.
const maxDifferences = 10

// explainer reads what an explanation needs from both sides.
type explainer struct {
	objects dynamic.Interface
	cloud   *neutron.Client
	cluster string
	world   semantics.World
	pods    []corev1.Pod // all, where they were read
	labels  map[string]map[string]string
}

func (e *explainer) explain(ctx context.Context, q question) (explanation, error) {
	out := explanation{
		FormatVersion: formatVersion, Pod: q.pod, Cluster: e.cluster, Ingress: []string{}, Egress: []string{},
		Groups: []string{}, Connections: []explained{},
	}
	e.world.Groups, e.labels = map[string]semantics.Group{}, map[string]map[string]string{}
	pod, err := e.pod(ctx, q.pod)
	if err != nil {
		return out, err
	}
	if pod.Spec.HostNetwork {
		return out, fmt.Errorf("pod %s: %w", q.pod, errHostNetwork)
	}
	own, err := e.party(ctx, pod)
	if err != nil {
		return out, err
	}
	for i := range e.world.Policies {
		p := &e.world.Policies[i]
		if semantics.Isolates(p, pod, semantics.Ingress) {
			out.Ingress = append(out.Ingress, p.Namespace+"/"+p.Name)
		}
		if semantics.Isolates(p, pod, semantics.Egress) {
			out.Egress = append(out.Egress, p.Namespace+"/"+p.Name)
		}
	}
	if own.Port == nil {
		out.Notes = append(out.Notes, "it has no port in the cloud yet")
	} else {
		for _, id := range own.Port.Groups {
			out.Groups = append(out.Groups, e.world.Groups[id].Name)
		}
		slices.Sort(out.Groups)
	}
	if len(q.peers) == 0 {
		return out, e.compare(ctx, own, q, &out)
	}
	for _, peer := range q.peers {
		other, err := e.peer(ctx, peer)
		if err != nil {
			return out, err
		}
		if other.Name == own.Name {
			return out, fmt.Errorf("%s is the pod's own address, and a pod always reaches itself", peer.addresses.Addr())
		}
		from, to := other, own
		if peer.direction == "to" {
			from, to = own, other
		}
		out.Connections = append(out.Connections, explained{
			From: from.Name, To: to.Name, Cases: semantics.Explain(e.world, from, to, q.port),
		})
	}
	return out, nil
}

// peer reads the other end of a connection. The address of a pod is that pod.
func (e *explainer) peer(ctx context.Context, a asked) (semantics.Party, error) {
	if a.pod != "" {
		pod, err := e.pod(ctx, a.pod)
		if err != nil {
			return semantics.Party{}, err
		}
		if pod.Spec.HostNetwork { // to policies it is its node
			return semantics.Party{Name: a.pod + " on its host's network", Addresses: statusAddresses(pod)}, nil
		}
		return e.party(ctx, pod)
	}
	if a.addresses.IsSingleIP() {
		if err := e.readPods(ctx); err != nil {
			return semantics.Party{}, err
		}
		text := a.addresses.Addr().String()
		ports, err := e.cloud.Ports(ctx, url.Values{"fixed_ips": {"ip_address=" + text}})
		if err != nil {
			return semantics.Party{}, err
		}
		for i := range e.pods {
			pod := &e.pods[i]
			uid := string(pod.UID)
			if !pod.Spec.HostNetwork && slices.ContainsFunc(ports, func(o plan.Observed) bool { return e.isPodPort(o, uid) }) {
				return e.party(ctx, pod)
			}
		}
	}
	return semantics.Party{Name: a.addresses.String(), Addresses: []netip.Prefix{a.addresses}}, nil
}

func (e *explainer) isPodPort(o plan.Observed, uid string) bool {
	device, _ := o.Attrs["device_id"].(string)
	return o.Kind == drivers.KindPort && e.managed(o) && device == uid
}

// managed says whether a resource is the cluster's.
func (e *explainer) managed(o plan.Observed) bool { return o.Managed && e.ofCluster(o.Identity) }

func (e *explainer) ofCluster(id plan.Identity) bool {
	return id.Key().Cluster == plan.Identity{Cluster: e.cluster}.Key().Cluster
}

// compare looks at all other pods, and keeps what differs.
func (e *explainer) compare(ctx context.Context, own semantics.Party, q question, out *explanation) error {
	if err := e.readPods(ctx); err != nil {
		return err
	}
	ports, err := e.cloud.List(ctx, drivers.KindPort, e.cluster)
	if err != nil {
		return err
	}
	byPod := map[string]plan.Observed{}
	for _, o := range ports {
		device, _ := o.Attrs["device_id"].(string)
		byPod[device] = o
	}
	for i := range e.pods {
		pod := &e.pods[i]
		o, ok := byPod[string(pod.UID)]
		if !ok || pod.UID == own.Pod.UID || pod.Spec.HostNetwork {
			continue // without a port it is no member of a group, and has no address
		}
		other := semantics.Party{Name: nameOfPod(pod), Pod: pod}
		if other.NamespaceLabels, err = e.namespace(ctx, pod.Namespace); err != nil {
			return err
		}
		other.Port, other.Addresses = portOf(o)
		out.Compared++
		for _, way := range []struct {
			from, to  semantics.Party
			direction networkingv1.PolicyType
		}{{other, own, semantics.Ingress}, {own, other, semantics.Egress}} {
			cases := semantics.ExplainSide(e.world, way.from, way.to, q.port, way.direction)
			cases = slices.DeleteFunc(cases, func(c semantics.Case) bool { return !c.Differ })
			if len(cases) > 0 && len(out.Connections) < maxDifferences {
				out.Connections = append(out.Connections, explained{From: way.from.Name, To: way.to.Name, Cases: cases})
			}
		}
	}
	return nil
}

func nameOfPod(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// party reads a pod's port, its groups, and the policies of its namespace.
func (e *explainer) party(ctx context.Context, pod *corev1.Pod) (semantics.Party, error) {
	p := semantics.Party{Name: nameOfPod(pod), Pod: pod}
	var err error
	if p.NamespaceLabels, err = e.namespace(ctx, pod.Namespace); err != nil {
		return p, err
	}
	if err := e.policies(ctx, pod.Namespace); err != nil {
		return p, err
	}
	ports, err := e.cloud.Ports(ctx, url.Values{"device_id": {string(pod.UID)}})
	if err != nil {
		return p, err
	}
	for _, o := range ports {
		if e.isPodPort(o, string(pod.UID)) {
			p.Port, p.Addresses = portOf(o)
			if err := e.groups(ctx, p.Port.Groups); err != nil {
				return p, err
			}
			return p, e.groups(ctx, e.remoteGroups(p.Port.Groups)) // for their names
		}
	}
	p.Addresses = statusAddresses(pod)
	return p, nil
}

// statusAddresses are those that a pod's status has.
func statusAddresses(pod *corev1.Pod) (addresses []netip.Prefix) {
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return addresses
}

// portOf reads a port and its addresses.
func portOf(o plan.Observed) (*semantics.Port, []netip.Prefix) {
	p := &semantics.Port{ID: o.ID}
	if secured, ok := o.Attrs["port_security_enabled"].(bool); ok {
		p.Unprotected = !secured
	}
	list, _ := o.Attrs["security_groups"].([]any)
	for _, id := range list {
		p.Groups = append(p.Groups, fmt.Sprint(id))
	}
	var addresses []netip.Prefix
	list, _ = o.Attrs["fixed_ips"].([]any)
	for _, element := range list {
		fixed, _ := element.(map[string]any)
		text, _ := fixed["ip_address"].(string)
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return p, addresses
}

// groups reads security groups with their rules, each once.
func (e *explainer) groups(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, ok := e.world.Groups[id]; ok {
			continue
		}
		o, err := e.cloud.Get(ctx, drivers.KindSecurityGroup, id)
		if err != nil {
			return err
		}
		g := semantics.Group{ID: id}
		g.Name, _ = o.Attrs["name"].(string)
		if e.managed(o) {
			g.Driver = o.Identity.Owner.Driver
			if g.Driver == plan.ShortDriver(semantics.DriverNetworkPolicy) {
				g.Driver = semantics.DriverNetworkPolicy
			}
		}
		list, shown := o.Attrs["security_group_rules"].([]any)
		if !shown {
			return fmt.Errorf("security group %q (%s): Neutron does not show its rules to these credentials", g.Name, id)
		}
		for _, element := range list {
			doc, _ := element.(map[string]any)
			g.Rules = append(g.Rules, e.ruleOf(doc))
		}
		e.world.Groups[id] = g
	}
	return nil
}

// remoteGroups are those that the rules of groups name.
func (e *explainer) remoteGroups(ids []string) (remote []string) {
	for _, id := range ids {
		for i := range e.world.Groups[id].Rules {
			if other := e.world.Groups[id].Rules[i].RemoteGroup; other != "" && !slices.Contains(remote, other) {
				remote = append(remote, other)
			}
		}
	}
	return remote
}

func (e *explainer) ruleOf(doc map[string]any) (r semantics.Rule) {
	str := func(key string) string {
		text, _ := doc[key].(string)
		return text
	}
	number := func(key string) int32 {
		switch n := doc[key].(type) {
		case float64:
			return int32(n)
		case int64:
			return int32(n)
		}
		return 0
	}
	r = semantics.Rule{
		ID: str("id"), Direction: str("direction"), EtherType: str("ethertype"), Protocol: strings.ToLower(str("protocol")),
		Min: number("port_range_min"), Max: number("port_range_max"), RemoteGroup: str("remote_group_id"),
		Unknown: str("remote_address_group_id") != "",
	}
	if id, ok := plan.Parse(nil, str("description")); ok && e.ofCluster(id) {
		r.Itself = strings.HasPrefix(id.Name, drivers.MembersItself)
	}
	if r.Protocol == "any" || r.Protocol == "0" {
		r.Protocol = ""
	}
	if text := str("remote_ip_prefix"); text != "" {
		var err error
		r.Range, err = netip.ParsePrefix(text)
		r.Unknown = r.Unknown || err != nil
	}
	return r
}

// The objects of the cluster.

func resource(group, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}
}

func (e *explainer) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	namespace, name, _ := strings.Cut(name, "/")
	object, err := e.get(ctx, resource("", "pods"), namespace, name)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, typed(object, pod)
}

// get reads one object by a list, which is what Raven's account may do.
func (e *explainer) get(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name string,
) (found *unstructured.Unstructured, err error) {
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	err = e.list(ctx, gvr, namespace, options, func(object *unstructured.Unstructured) error {
		found = object
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("reading %s: the cluster has no %s", gvr.Resource, strings.TrimPrefix(namespace+"/"+name, "/"))
	}
	return found, err
}

func (e *explainer) readPods(ctx context.Context) error {
	if e.pods != nil {
		return nil
	}
	return e.list(ctx, resource("", "pods"), "", metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		e.pods = append(e.pods, corev1.Pod{})
		return typed(object, &e.pods[len(e.pods)-1])
	})
}

// namespace returns the labels of a namespace.
func (e *explainer) namespace(ctx context.Context, name string) (map[string]string, error) {
	if set, ok := e.labels[name]; ok {
		return set, nil
	}
	object, err := e.get(ctx, resource("", "namespaces"), "", name)
	if err != nil {
		return nil, err
	}
	e.labels[name] = object.GetLabels()
	return e.labels[name], nil
}

// policies reads those of a namespace, once.
func (e *explainer) policies(ctx context.Context, namespace string) error {
	if slices.ContainsFunc(e.world.Policies, func(p networkingv1.NetworkPolicy) bool { return p.Namespace == namespace }) {
		return nil
	}
	gvr := resource("networking.k8s.io", "networkpolicies")
	return e.list(ctx, gvr, namespace, metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		e.world.Policies = append(e.world.Policies, networkingv1.NetworkPolicy{})
		return typed(object, &e.world.Policies[len(e.world.Policies)-1])
	})
}

// list reads objects page by page.
func (e *explainer) list(
	ctx context.Context, gvr schema.GroupVersionResource, namespace string, options metav1.ListOptions,
	each func(*unstructured.Unstructured) error,
) error {
	options.Limit = 500
	for {
		page, err := e.objects.Resource(gvr).Namespace(namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
		}
		for i := range page.Items {
			if err := each(&page.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// typed reads an object as what it is.
func typed(object *unstructured.Unstructured, into any) error {
	if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}
