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

// door is what a rule in a namespace's security group opens, for all pods that have the group.
type door struct {
	protocol string // in small letters
	port     int64
	ip4      bool
}

func doorOf(p *Port, backend *Backend) door {
	return door{strings.ToLower(p.Protocol), backend.Port, backend.Addr.Is4()}
}

// Guard says from which backends of a Service that limits its clients the rules in the namespace's security group
// keep all others.
type Guard struct {
	pods    map[PodName]Pod
	openers map[door]string // the Service whose rules let others in
}

// Guard returns the guard of a Service that limits its clients to these, and whether it is known yet. Rules of
// several Services add up in the one group: letsIn says whom those of another Service let in; false: everybody.
func (c *Config) Guard(
	needs *drivers.Needs, s *Service, clients []netip.Prefix, letsIn func(*Service) ([]netip.Prefix, bool),
) (*Guard, bool, error) {
	pods, known, err := Pods(needs, s)
	if err != nil {
		return nil, true, err
	}
	others, answered := needs.Get(drivers.Need{Watch: servicesWatch, Namespace: s.Metadata.Namespace})
	offers, offered, err := offersOf(needs, s.Metadata.Namespace, others)
	if err != nil || !known || !answered || !offered {
		return nil, false, err
	}
	g := &Guard{pods: pods, openers: map[door]string{}}
	for _, object := range others {
		other, err := Decode(object)
		if err != nil {
			return nil, true, err
		}
		if other.Metadata.Name != s.Metadata.Name && other.Proxied() {
			g.add(other, resolve(other.Spec.Ports, offers[other.Metadata.Name]), clients, letsIn)
		}
	}
	return g, true, nil
}

// add notes the doors that another Service opens to more than these clients.
func (g *Guard) add(
	other *Service, ports []Port, clients []netip.Prefix, letsIn func(*Service) ([]netip.Prefix, bool),
) {
	ranges, limited := letsIn(other)
	for i := range ports {
		for j := range ports[i].Backends {
			backend := &ports[i].Backends[j]
			if backend.Pod.Namespace != other.Metadata.Namespace {
				continue
			}
			d := doorOf(&ports[i], backend)
			wider := !limited || slices.ContainsFunc(ranges, func(r netip.Prefix) bool {
				return r.Addr().Is4() == d.ip4 && !covered(r, clients)
			})
			if _, noted := g.openers[d]; wider && !noted {
				g.openers[d] = other.Name()
			}
		}
	}
}

// offersOf returns what is offered for each of the Services of a namespace, by name, and whether that is known yet.
func offersOf(needs *drivers.Needs, namespace string, services []drivers.Object) (map[string][]offer, bool, error) {
	offers, known, err := slicedOffers(needs, namespace)
	sliced := func(name string) bool { _, there := offers[name]; return there }
	if err != nil || !known || len(services) == 0 ||
		!slices.ContainsFunc(services, func(object drivers.Object) bool { return !sliced(nameOf(object)) }) {
		return offers, known, err
	}
	found, known := needs.Get(drivers.Need{Watch: endpointsWatch, Namespace: namespace})
	for _, object := range found {
		name := nameOf(object)
		if sliced(name) {
			continue
		}
		if offers[name], err = readEndpoints(object, offers[name]); err != nil {
			return nil, true, err
		}
	}
	return offers, known, nil
}

// slicedOffers is offersOf by EndpointSlices alone. A Service that has some is there, also if they offer nothing.
func slicedOffers(needs *drivers.Needs, namespace string) (map[string][]offer, bool, error) {
	found, known := needs.Get(drivers.Need{Watch: slicesWatch, Namespace: namespace})
	offers := map[string][]offer{}
	for _, object := range found {
		var meta struct {
			Metadata metadata `json:"metadata"`
		}
		if err := object.Into(&meta); err != nil {
			return nil, true, err
		}
		name := meta.Metadata.Labels[serviceNameLabel]
		var err error
		if offers[name], err = readSlice(object, offers[name]); err != nil {
			return nil, true, err
		}
	}
	return offers, known, nil
}

func nameOf(object drivers.Object) string {
	meta, err := object.Meta()
	if err != nil {
		return "" // who decodes it says so
	}
	return meta.Name
}

// covered says whether a range lies within one of others.
func covered(r netip.Prefix, by []netip.Prefix) bool {
	return slices.ContainsFunc(by, func(other netip.Prefix) bool {
		return other.Bits() <= r.Bits() && other.Contains(r.Addr())
	})
}

// LetsIn returns the ranges that the rules for a Service's members let in where members see the client's own address;
// false: everybody.
func (c *Config) LetsIn(s *Service) ([]netip.Prefix, bool) {
	var out Outside
	r := c.Reader(s, nil)
	r.Spec(s, &out)
	if out.RangesUnreadable {
		return nil, false // it keeps the rules that it had, whatever these are
	}
	return c.Limits(s, out)
}

// Limits returns the ranges of clients, pods among them, that a Service limits itself to; false: it does not.
func (c *Config) Limits(s *Service, out Outside) ([]netip.Prefix, bool) {
	b := Builder{config: c, Service: s, Outside: out}
	return b.Clients(true, true), b.Limited()
}

// GroupOpen returns a range that the namespace's security group lets in by itself though the Service does not, and
// whether there is one.
func (b *Builder) GroupOpen() (netip.Prefix, bool) {
	clients := b.Clients(true, true)
	for _, r := range b.config.Ingress {
		if (r.Addr().Is4() && b.config.IP4 || r.Addr().Is6() && b.config.IP6) && !covered(r, clients) {
			return r, true
		}
	}
	return netip.Prefix{}, false
}

// SayGroupOpen says, with an Event, that the namespace's security group enforces nothing for the Service, and whether
// that is so.
func (b *Builder) SayGroupOpen() bool {
	r, open := b.GroupOpen()
	if open {
		b.Say(drivers.Error, "SourceRangesNotEnforced",
			"spec.loadBalancerSourceRanges are not enforced, so the Service gets no address outside: the namespace's "+
				"security group lets in %s by itself, see [%s] %s", r, conf.SubnetGroup, conf.OptIngress)
	}
	return open
}

// Guarded says whether the rules in the namespace's security group decide who reaches a backend: that of a pod that
// has the group, at a port that no other Service opens to more clients.
func (b *Builder) Guarded(p *Port, backend Backend) bool {
	return b.grouped(backend) && b.Guard.openers[doorOf(p, &backend)] == ""
}

// grouped says whether a backend is a pod that has the namespace's security group.
func (b *Builder) grouped(backend Backend) bool {
	pod, known := b.Guard.pods[backend.Pod]
	return known && !pod.HostNetwork && !pod.OwnGroup && backend.Pod.Namespace == b.Service.Metadata.Namespace
}

// Unguarded returns, for people, the endpoints of one IP version that the namespace's security group does not guard,
// and the ports of pods that other Services open to more clients. Backends that are left out anyway do not count.
func (b *Builder) Unguarded(ip4 bool, out func(Backend) bool) (endpoints, ports []string) {
	for i := range b.Ports {
		p := &b.Ports[i]
		for _, backend := range p.Of(ip4) {
			add := func(to *[]string, text string) {
				if !slices.Contains(*to, text) {
					*to = append(*to, text)
				}
			}
			switch who := b.Guard.openers[doorOf(p, &backend)]; {
			case out(backend):
			case !b.grouped(backend):
				add(&endpoints, backend.Addr.String())
			case who != "":
				add(&ports, fmt.Sprintf("%s %d by Service %s", p.Protocol, backend.Port, who))
			}
		}
	}
	return endpoints, ports
}
