// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// FloatingName is the logical name of the floating IP of a Service of type LoadBalancer.
func (b *Builder) FloatingName() string {
	if asked, err := netip.ParseAddr(b.Service.Spec.LoadBalancerIP); err == nil {
		return drivers.FloatingIPName(asked.String())
	}
	return drivers.FloatingIPName("4")
}

// FloatingNames are the logical names that the floating IP of a Service of type LoadBalancer may have: two where the
// address that it asks for cannot be read, of which only one exists.
func (b *Builder) FloatingNames() []string {
	names := []string{b.FloatingName()}
	if had := b.Outside.Had; had != "" {
		names = append(names, drivers.FloatingIPName(had))
	}
	return names
}

// StayFloating leaves a floating IP as it is, once; it says whether it was the first time.
func (b *Builder) StayFloating(name string) bool {
	if b.Made[name] {
		return false
	}
	b.Made[name] = true
	b.Set.Undecided, b.Floatings = append(b.Set.Undecided, name), append(b.Floatings, name)
	return true
}

// Way is where a floating IP leads.
type Way struct {
	// IPv4 says that there is an IPv4 address to lead to; Instead what there is otherwise.
	IPv4    bool
	Instead string
	// Lead sets the port of the floating IP; suffix is the address that was asked for, or "4".
	Lead func(suffix string, fip *drivers.FloatingIP)
}

// Floating adds a floating IP, once, and returns its logical name; empty if that is not possible. address is the one
// that is asked for, empty for any.
func (b *Builder) Floating(address string, way Way) string {
	asked, _ := netip.ParseAddr(address) // empty, or read before
	network := b.Outside.Network
	if network == "" {
		network = b.config.ExternalNet
	}
	switch {
	case !way.IPv4 || asked.Is6():
		b.Say(drivers.Error, "NoFloatingIP", "%s floating IPs are IPv4: %s", asking(asked), way.Instead)
		return ""
	case network == "":
		b.Say(drivers.Error, "NoFloatingIP", "%s no external network is known: set [%s] %s, or annotation %s on the Service",
			asking(asked), conf.DefaultsGroup, conf.OptExternalNetwork, FloatingNetwork)
		return ""
	}
	suffix := "4"
	if asked.IsValid() {
		suffix = asked.String()
	}
	name := drivers.FloatingIPName(suffix)
	if b.Made[name] {
		return name
	}
	b.Made[name] = true
	fip := drivers.FloatingIP{}
	way.Lead(suffix, &fip)
	fip.FloatingNetworkID = b.Lookup(externalNetwork, drivers.KindNetwork, network)
	switch {
	case b.Outside.Subnet != "":
		fip.SubnetID = drivers.Text(b.Outside.Subnet)
	case b.config.ExternalSubnet != "" && b.Outside.Network == "":
		fip.SubnetID = b.Lookup(externalSubnet, drivers.KindSubnet, b.config.ExternalSubnet)
	}
	if asked.IsValid() {
		fip.FloatingIPAddress = new(asked.String())
	}
	r := drivers.Resource{Name: name, Spec: fip}
	if b.Outside.KeepOnDelete {
		r.OnDelete = drivers.Retain
	}
	b.Add(r)
	b.Floatings = append(b.Floatings, name)
	return name
}

func asking(addr netip.Addr) string {
	if addr.IsValid() {
		return addr.String() + " leads nowhere:"
	}
	return "the Service gets no address outside:"
}

// ExternalIPs calls do with every one of spec.externalIPs that is an address.
func (b *Builder) ExternalIPs(do func(netip.Addr)) {
	for _, text := range b.Service.Spec.ExternalIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			b.Say(drivers.Error, "BadExternalIP", "spec.externalIPs: %q is no IP address", text)
			continue
		}
		do(addr.Unmap())
	}
}

// IngressOf writes the address of a floating IP in the Service's status.
func (b *Builder) IngressOf(floatingIP string) {
	if floatingIP == "" {
		return
	}
	key := "4"
	if floatingIP == drivers.FloatingIPName(b.Outside.Had) {
		key = floatingIP // beside the other that it may be
	}
	b.Ingress(key, drivers.From(floatingIP, "floating_ip_address"))
}

// Ingress writes an address in the Service's status.
func (b *Builder) Ingress(key string, address drivers.Value) {
	b.Set.Outputs = append(b.Set.Outputs, drivers.Output{Kind: drivers.Ingress, Key: key, Text: address})
}

// FloatingOutputs says on the Service how it is reached from outside, and by whom.
func (b *Builder) FloatingOutputs() {
	switch {
	case b.AsWritten:
		b.Set.Outputs = append(b.Set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: FloatingIPAnnotation, Text: drivers.Text(b.Outside.There.Text),
		})
	case len(b.Floatings) > 0:
		b.Document(FloatingIPAnnotation, b.Floatings[0], "")
	}
	at := slices.IndexFunc(b.Set.Outputs, func(o drivers.Output) bool { return o.Kind == drivers.Ingress })
	if at >= 0 {
		b.Set.Outputs = append(b.Set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: AddressAnnotation, Text: b.Set.Outputs[at].Text,
		})
	}
	if b.Limited() && !b.Outside.RangesUnreadable {
		var texts []string
		for _, r := range b.Outside.Ranges {
			texts = append(texts, r.String())
		}
		b.Set.Outputs = append(b.Set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: SourceRangesAnnotation, Text: drivers.Text(strings.Join(texts, ",")),
		})
	}
}

// Document writes an annotation.
func (b *Builder) Document(key, name, attribute string) {
	b.Set.Outputs = append(b.Set.Outputs, drivers.Output{
		Kind: drivers.Annotation, Key: key, Document: &drivers.Ref{Name: name, Attribute: attribute},
	})
}

// MemberRules adds rules that let traffic in to members, where the namespace's group does not do that by itself.
// Equal rules of several Services are one: Neutron refuses the second. keepsClient says that members see the client's
// own address, so that the rules limit who is let in; beside are addresses that are let in then, too.
func (b *Builder) MemberRules(keepsClient bool, beside ...netip.Addr) {
	if !b.config.MemberRules {
		return
	}
	seen := map[door]bool{}
	for i := range b.Ports {
		for _, backend := range b.Ports[i].Backends {
			d := doorOf(&b.Ports[i], &backend)
			if backend.Pod.Namespace != b.Service.Metadata.Namespace || seen[d] {
				continue
			}
			seen[d] = true
			sources := []string{""}
			if b.Limited() && keepsClient {
				sources = b.sources(d.ip4, beside)
			}
			for _, source := range sources {
				b.rule(d.protocol, d.port, d.ip4, source)
			}
		}
	}
}

func (b *Builder) sources(ip4 bool, beside []netip.Addr) []string {
	var sources []string
	for _, r := range b.Clients(ip4, !ip4) {
		sources = append(sources, r.String())
	}
	for _, addr := range beside {
		if addr.Is4() == ip4 {
			sources = append(sources, netip.PrefixFrom(addr, addr.BitLen()).String())
		}
	}
	return sources
}

func (b *Builder) rule(protocol string, port int64, ip4 bool, source string) {
	etherType, suffix := "IPv4", "v4"
	if !ip4 {
		etherType, suffix = "IPv6", "v6"
	}
	name := fmt.Sprintf("members-%s-%s-%d-%s", b.Service.Metadata.Namespace, protocol, port, suffix)
	rule := drivers.SecurityGroupRule{
		SecurityGroupID: drivers.FromRole(b.Role(b.group)), Direction: new("ingress"),
		EtherType: new(etherType),
		Protocol:  new(protocol), PortRangeMin: new(port), PortRangeMax: new(port),
	}
	if source != "" {
		rule.RemoteIPPrefix = new(source)
		name += "-" + strings.NewReplacer("/", "-", ":", "-").Replace(source)
	}
	b.Add(drivers.Resource{Name: name, Claim: name, Spec: rule})
}
