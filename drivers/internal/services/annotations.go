// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// AnnotationPrefix is that of the annotations that users of cloud-provider-openstack know.
const AnnotationPrefix = "loadbalancer.openstack.org/"

// The annotations that say how a Service is reached from outside.
const (
	InternalAnnotation = "service.beta.kubernetes.io/openstack-internal-load-balancer"
	ClassAnnotation    = AnnotationPrefix + "class"
	FloatingNetwork    = AnnotationPrefix + "floating-network-id"
	FloatingSubnet     = AnnotationPrefix + "floating-subnet-id"
	KeepFloatingIP     = AnnotationPrefix + "keep-floatingip"
	VIPSubnet          = AnnotationPrefix + "subnet-id"
	VIPNetwork         = AnnotationPrefix + "network-id"
)

// The annotations that say how Octavia balances.
const (
	ProviderAnnotation = "kuryr.org/octavia-provider"
	LBMethod           = AnnotationPrefix + "lb-method"
	ProxyProtocol      = AnnotationPrefix + "proxy-protocol"
	ConnectionLimit    = AnnotationPrefix + "connection-limit"
	TimeoutClient      = AnnotationPrefix + "timeout-client-data"
	TimeoutConnect     = AnnotationPrefix + "timeout-member-connect"
	TimeoutMember      = AnnotationPrefix + "timeout-member-data"
	FlavorID           = AnnotationPrefix + "flavor-id"
	AvailabilityZone   = AnnotationPrefix + "availability-zone"
	HealthMonitor      = AnnotationPrefix + "enable-health-monitor"
	MonitorDelay       = AnnotationPrefix + "health-monitor-delay"
	MonitorTimeout     = AnnotationPrefix + "health-monitor-timeout"
	MonitorMaxRetries  = AnnotationPrefix + "health-monitor-max-retries"
)

// The annotations that are written on a Service, whoever serves it.
const (
	// FloatingIPAnnotation is the floating IP that leads to the Service, the first of several: a JSON document.
	FloatingIPAnnotation = "kuryr.org/neutron-fip"
	// SourceRangesAnnotation is spec.loadBalancerSourceRanges as they were read last, with commas between them.
	SourceRangesAnnotation = "kuryr.org/source-ranges"
	// AddressAnnotation is the address that a Service of type LoadBalancer has outside; its value is the address itself.
	AddressAnnotation = AnnotationPrefix + "load-balancer-address"
)

// SecurityGroupLabel on a Service is the UUID of the security group that its VIP has, as on a Pod of its port.
const SecurityGroupLabel = "kuryr.org/neutron-security-group"

// Written lists those that are written on a Service.
func Written() []string {
	return []string{FloatingIPAnnotation, SourceRangesAnnotation, AddressAnnotation}
}

// Annotations lists all that are read of a Service.
func Annotations() []string {
	return append(ClassAnnotations(), ClassAnnotation, ProviderAnnotation, InternalAnnotation)
}

// ClassAnnotations lists those that a class may have.
func ClassAnnotations() []string {
	return append([]string{FloatingNetwork, FloatingSubnet, KeepFloatingIP, VIPSubnet, VIPNetwork}, Balancing()...)
}

// Balancing lists those of a class that only Octavia knows.
func Balancing() []string {
	return []string{
		LBMethod, ProxyProtocol, ConnectionLimit, TimeoutClient, TimeoutConnect, TimeoutMember, FlavorID, AvailabilityZone,
		HealthMonitor, MonitorDelay, MonitorTimeout, MonitorMaxRetries,
	}
}

// Kept is what becomes of a part whose value is bad.
const Kept = "what it is about " + kept

const kept = "stays as it is until that is put right"

// Outside is how a Service is to be reached from outside.
type Outside struct {
	// Keep says that some value is bad, so that it is not known; Unread that it is one of an annotation, Unaimed that it
	// is one of those that say which load balancer the floating IP leads to.
	Keep            bool
	Unread, Unaimed bool
	Internal        bool
	Network, Subnet string // of the floating IP; empty: as configured
	VIPNet, VIPSub  string // of an own VIP; both empty: none
	KeepOnDelete    bool
	// Had is the address that the Service has, which may be the one that it once asked for; only where that cannot be
	// read.
	Had string
	// There is the floating IP that was written on the Service; only of who asks for it.
	There            FloatingIP
	Ranges           []netip.Prefix // of clients; empty: everybody
	RangesUnreadable bool           // one of them; and none were read before
	// Problems are annotations whose values are bad; what they are about is kept.
	Problems []string
}

// FloatingIP is what is read of the floating IP that was written on a Service, the first of several. It is empty
// without one.
type FloatingIP struct {
	Text             string // as it was written
	Address, Network string
}

// Reader reads the annotations of a Service or of a class.
type Reader struct {
	Annotations map[string]string
	Class       map[string]string // what applies where Annotations lacks a key
	// Unclassed says that the class is not known: nor is, then, what it may have given.
	Unclassed bool
	// Problems are bad values; what they are about is kept.
	Problems []string
	// Written returns the annotations that were written on the Service, and whether they are known yet; nil where the
	// driver must not ask for them.
	Written func() (map[string]string, bool)
	// Waiting says that they were asked for and are not known yet: what was read counts for nothing.
	Waiting bool
}

// Reader returns what reads a Service's annotations, with its class. Only with needs it learns what was written on
// the Service.
func (c *Config) Reader(s *Service, needs *drivers.Needs) Reader {
	r := Reader{Annotations: s.Metadata.Annotations}
	if needs != nil {
		r.Written = func() (map[string]string, bool) { return written(needs, s) }
	}
	if class, ok := r.Get(ClassAnnotation); ok {
		if r.Class, ok = c.Classes[class]; !ok {
			r.Unclassed = true
			r.Bad(ClassAnnotation, "names no class of [%s] %s; what it has given %s", OctaviaGroup, OptClasses, kept)
		}
	}
	return r
}

// Last returns the annotations that were written on the Service, which say what there is. Who asks only where a value
// is bad is not woken by what is written on any other Service.
func (r *Reader) Last() map[string]string {
	if r.Written == nil {
		return nil
	}
	last, known := r.Written()
	r.Waiting = r.Waiting || !known
	return last
}

// Get returns the value of an annotation.
func (r *Reader) Get(key string) (string, bool) {
	if text, ok := r.Annotations[key]; ok {
		return strings.TrimSpace(text), true
	}
	text, ok := r.Class[key]
	return text, ok
}

// Bad notes that a value is bad.
func (r *Reader) Bad(key, format string, args ...any) {
	text, _ := r.Get(key)
	r.Problems = append(r.Problems, fmt.Sprintf("annotation %s = %q %s", key, text, fmt.Sprintf(format, args...)))
}

// Outside reads how the Service is to be reached from outside, as far as annotations say it.
func (r *Reader) Outside() Outside {
	before := len(r.Problems)
	if r.Unclassed {
		before = -1
	}
	text := func(key string) string {
		if id := r.UUID(key); id != nil {
			return *id
		}
		return ""
	}
	out := Outside{Internal: r.Flag(InternalAnnotation, false), VIPNet: text(VIPNetwork), VIPSub: text(VIPSubnet)}
	out.Unaimed = len(r.Problems) > before
	out.Network, out.Subnet = text(FloatingNetwork), text(FloatingSubnet)
	unread := len(r.Problems)
	// who may have asked for it has asked for it
	out.KeepOnDelete = r.Flag(KeepFloatingIP, r.Unclassed) || len(r.Problems) > unread
	out.Unread = len(r.Problems) > before
	out.Keep = out.Unread
	return out
}

// Spec reads what the spec says of the way from outside. An address that cannot be read is none from then on.
func (r *Reader) Spec(s *Service, out *Outside) {
	r.ranges(s, out)
	if address := s.Spec.LoadBalancerIP; address != "" && s.Spec.Type == TypeLoadBalancer {
		if _, err := netip.ParseAddr(address); err != nil {
			r.Problems = append(r.Problems, fmt.Sprintf("spec.loadBalancerIP: %q is no IP address; %s", address, Kept))
			s.Spec.LoadBalancerIP = ""
			out.Keep, out.Unread, out.Had = true, true, r.had(s)
		}
	}
	out.Problems = r.Problems
}

// ranges reads the ranges of clients. Where one cannot be read those that were read last count; where there were
// none, those that can.
func (r *Reader) ranges(s *Service, out *Outside) {
	for _, text := range s.Spec.LoadBalancerSourceRanges {
		p, ok := rangeOf(text)
		if !ok {
			out.RangesUnreadable = true
			r.Problems = append(r.Problems,
				fmt.Sprintf("spec.loadBalancerSourceRanges: %q is no range such as 10.0.0.0/16; %s", text, Kept))
			continue
		}
		out.Ranges = append(out.Ranges, p)
	}
	if !out.RangesUnreadable {
		return
	}
	var last []netip.Prefix
	for text := range strings.SplitSeq(r.Last()[SourceRangesAnnotation], ",") {
		p, ok := rangeOf(text)
		if !ok {
			out.Keep = true
			return
		}
		last = append(last, p)
	}
	out.Ranges, out.RangesUnreadable = last, false
}

// rangeOf reads a range as an API server does, which lets numbers begin with zeros.
func rangeOf(text string) (netip.Prefix, bool) {
	address, bits, _ := strings.Cut(strings.TrimSpace(text), "/")
	if parts := strings.Split(address, "."); len(parts) == 4 {
		for i, part := range parts {
			parts[i] = plain(part)
		}
		address = strings.Join(parts, ".")
	}
	p, err := netip.ParsePrefix(address + "/" + plain(bits))
	return p.Masked(), err == nil
}

// plain is a number without the zeros that it begins with.
func plain(number string) string {
	if rest := strings.TrimLeft(number, "0"); rest != "" || number == "" {
		return rest
	}
	return "0"
}

// There returns the floating IP that was written on the Service.
func (r *Reader) There() FloatingIP {
	var document struct {
		Address string `json:"floating_ip_address"`
		Network string `json:"floating_network_id"`
	}
	text, ok := r.Last()[FloatingIPAnnotation]
	if !ok || json.Unmarshal([]byte(text), &document) != nil {
		return FloatingIP{}
	}
	there := FloatingIP{Text: text}
	if addr, err := netip.ParseAddr(document.Address); err == nil {
		there.Address = addr.String()
	}
	if drivers.IsUUID(document.Network) {
		there.Network = strings.ToLower(document.Network)
	}
	return there
}

// had returns the address that a Service of type LoadBalancer has outside: that of a floating IP which is none of its
// externalIPs, or an IPv6 address as it is; empty without one.
func (r *Reader) had(s *Service) string {
	if address := r.There().Address; address != "" && !s.external(address) {
		return address
	}
	addr, err := netip.ParseAddr(r.Last()[AddressAnnotation])
	own, _ := s.ClusterIPs() // who serves them tells what is wrong with them
	if addr = addr.Unmap(); err != nil || addr.Is4() || addr.Zone() != "" || slices.Contains(own, addr) {
		return ""
	}
	return addr.String()
}

// external says whether an address is one of spec.externalIPs.
func (s *Service) external(address string) bool {
	return slices.ContainsFunc(s.Spec.ExternalIPs, func(text string) bool {
		addr, err := netip.ParseAddr(text)
		return err == nil && addr.Unmap().String() == address
	})
}

// Number returns the number that an annotation gives, fallback where it is not there, and nil where it is bad or not
// known.
func (r *Reader) Number(key string, least, most int64, fallback *int64) *int64 {
	text, ok := r.Get(key)
	if !ok {
		if r.Unclassed {
			return nil
		}
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		r.Bad(key, "is no whole number from %d to %d; %s", least, most, Kept)
		return nil
	}
	return &n
}

// Flag returns the boolean that an annotation gives, fallback where it is not there.
func (r *Reader) Flag(key string, fallback bool) bool {
	text, ok := r.Get(key)
	if !ok {
		return fallback
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		r.Bad(key, "is neither true nor false; %s", Kept)
	}
	return on
}

// UUID returns the UUID that an annotation gives; nil where it is not there, empty or bad.
func (r *Reader) UUID(key string) *string {
	text, ok := r.Get(key)
	if !ok || text == "" {
		return nil
	}
	if !drivers.IsUUID(text) {
		r.Bad(key, "is no UUID; %s", Kept)
		return nil
	}
	return new(strings.ToLower(text))
}
