package lbaas

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers/internal/services"
)

// annotationPrefix is that of the annotations that users of cloud-provider-openstack know.
const annotationPrefix = "loadbalancer.openstack.org/"

// The annotations that are read of a Service.
const (
	// ProviderAnnotation names the Octavia provider for one Service.
	ProviderAnnotation = "kuryr.org/octavia-provider"
	internalAnnotation = "service.beta.kubernetes.io/openstack-internal-load-balancer"

	floatingNetwork   = annotationPrefix + "floating-network-id"
	floatingSubnet    = annotationPrefix + "floating-subnet-id"
	keepFloatingIP    = annotationPrefix + "keep-floatingip"
	vipSubnet         = annotationPrefix + "subnet-id"
	vipNetwork        = annotationPrefix + "network-id"
	lbMethod          = annotationPrefix + "lb-method"
	proxyProtocol     = annotationPrefix + "proxy-protocol"
	connectionLimit   = annotationPrefix + "connection-limit"
	timeoutClient     = annotationPrefix + "timeout-client-data"
	timeoutConnect    = annotationPrefix + "timeout-member-connect"
	timeoutMember     = annotationPrefix + "timeout-member-data"
	flavorID          = annotationPrefix + "flavor-id"
	availabilityZone  = annotationPrefix + "availability-zone"
	healthMonitor     = annotationPrefix + "enable-health-monitor"
	monitorDelay      = annotationPrefix + "health-monitor-delay"
	monitorTimeout    = annotationPrefix + "health-monitor-timeout"
	monitorMaxRetries = annotationPrefix + "health-monitor-max-retries"
	classAnnotation   = annotationPrefix + "class"
)

// annotations lists all that are read of a Service.
func annotations() []string {
	return append(classAnnotations(), classAnnotation, ProviderAnnotation, internalAnnotation)
}

// classAnnotations lists those that a class may have.
func classAnnotations() []string {
	return []string{
		floatingNetwork, floatingSubnet, keepFloatingIP, vipSubnet, vipNetwork, lbMethod, proxyProtocol, connectionLimit,
		timeoutClient, timeoutConnect, timeoutMember, flavorID, availabilityZone, healthMonitor, monitorDelay, monitorTimeout,
		monitorMaxRetries,
	}
}

// settings are what a Service's annotations and the options come to. A pointer that is nil, or a part that is said to be kept, is
// not managed: what there is stays as it is.
type settings struct {
	provider  provider
	algorithm string
	proxy     string // PROXY or PROXYV2; empty: none
	// connectionLimit is -1 for none.
	connectionLimit *int64
	// timeouts are in milliseconds; one that nobody sets is Octavia's.
	timeoutClient, timeoutConnect, timeoutMember *int64
	flavor, zone                                 *string
	// monitor is nil if there is none, unless keepMonitor.
	monitor     *monitor
	keepMonitor bool
	outside     outside
	// problems are annotations whose values are bad; what they are about is kept.
	problems []string
}

// kept is what becomes of a part whose value is bad.
const kept = "what it is about stays as it is until that is put right"

type monitor struct{ delay, timeout, maxRetries int64 }

// outside is how a Service of type LoadBalancer is to be reached.
type outside struct {
	// keep says that some value is bad, so that it is not known; unread that it is one of an annotation, unaimed that it is one of those
	// that say which load balancer the floating IP leads to.
	keep             bool
	unread, unaimed  bool
	internal         bool
	network, subnet  string // of the floating IP; empty: as configured
	vipNet, vipSub   string // of an own VIP; both empty: none
	keepOnDelete     bool
	ranges           []netip.Prefix // of clients; empty: everybody
	rangesUnreadable bool
}

// reader reads annotations.
type reader struct {
	annotations map[string]string
	class       map[string]string // what applies where annotations lacks a key
	problems    []string
	fatal       []string
}

func (r *reader) get(key string) (string, bool) {
	if text, ok := r.annotations[key]; ok {
		return strings.TrimSpace(text), true
	}
	text, ok := r.class[key]
	return text, ok
}

func (r *reader) bad(key, format string, args ...any) {
	text, _ := r.get(key)
	r.problems = append(r.problems, fmt.Sprintf("annotation %s = %q %s", key, text, fmt.Sprintf(format, args...)))
}

// settle is for values without which a load balancer cannot be described at all: everything stays as it is.
func (r *reader) settle(key, format string, args ...any) {
	before := len(r.problems)
	r.bad(key, format, args...)
	r.fatal = append(r.fatal, r.problems[before:]...)
	r.problems = r.problems[:before]
}

// read returns what a Service wants. The error names what cannot be read and cannot be kept by itself.
func (c *config) read(s *services.Service) (settings, error) {
	r := reader{annotations: s.Metadata.Annotations}
	if class, ok := r.get(classAnnotation); ok {
		if r.class, ok = c.classes[class]; !ok {
			r.settle(classAnnotation, "names no class of [%s] %s", octaviaGroup, optClasses)
		}
	}
	out := r.all(c)
	for _, text := range s.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			out.outside.keep, out.outside.rangesUnreadable = true, true
			r.problems = append(r.problems, fmt.Sprintf("spec.loadBalancerSourceRanges: %q is no range such as 10.0.0.0/16; %s", text, kept))
			continue
		}
		out.outside.ranges = append(out.outside.ranges, p.Masked())
	}
	if address := s.Spec.LoadBalancerIP; address != "" && s.Spec.Type == services.TypeLoadBalancer {
		if _, err := netip.ParseAddr(address); err != nil {
			r.fatal = append(r.fatal, fmt.Sprintf("spec.loadBalancerIP: %q is no IP address", address))
		}
	}
	out.problems = r.problems
	if len(r.fatal) > 0 {
		return settings{}, fmt.Errorf("%s: the Service keeps the load balancer that it has, or gets none, until that is put right",
			strings.Join(append(r.fatal, r.problems...), "; "))
	}
	return out, nil
}

// all reads every annotation that a class may have, and the provider.
func (r *reader) all(c *config) settings {
	var out settings
	out.provider = r.provider(c)
	out.algorithm = r.algorithm(c, &out.provider)
	out.proxy = r.proxy(&out.provider)
	out.connectionLimit = r.number(connectionLimit, -1, 1<<31-1, new(int64(-1)))
	out.timeoutClient = r.number(timeoutClient, 0, maxTimeout, positive(c.timeoutClient))
	out.timeoutConnect = r.number(timeoutConnect, 0, maxTimeout, nil)
	out.timeoutMember = r.number(timeoutMember, 0, maxTimeout, positive(c.timeoutMember))
	out.flavor = r.uuid(flavorID)
	if zone, ok := r.get(availabilityZone); ok && zone != "" {
		out.zone = &zone
	}
	out.monitor, out.keepMonitor = r.monitor(c)
	out.outside = r.outside()
	return out
}

func (r *reader) provider(c *config) provider {
	name, ok := r.get(ProviderAnnotation)
	if !ok {
		return providerOf(c.provider)
	}
	if problem := badProvider(name); problem != "" {
		r.settle(ProviderAnnotation, "%s", problem)
	}
	return providerOf(name)
}

// algorithm returns the one that is asked for, or the nearest that the provider has.
func (r *reader) algorithm(c *config, p *provider) string {
	wanted := c.algorithm
	if text, ok := r.get(lbMethod); ok {
		wanted = strings.ToUpper(text)
		if !slices.Contains(algorithms(), wanted) {
			r.settle(lbMethod, "is none of %s", strings.Join(algorithms(), ", "))
		} else if !p.has(wanted) {
			r.bad(lbMethod, "is not possible with %s; %s is used", p, p.algorithms[0])
		}
	}
	if p.has(wanted) {
		return wanted
	}
	return p.algorithms[0]
}

func (r *reader) proxy(p *provider) string {
	text, ok := r.get(proxyProtocol)
	if !ok {
		return ""
	}
	var proxy string
	switch strings.ToLower(text) {
	case "v1":
		proxy = "PROXY"
	case "v2":
		proxy = "PROXYV2"
	default:
		on, err := strconv.ParseBool(text)
		if err != nil {
			r.settle(proxyProtocol, "is none of true, false, v1, v2")
		}
		if on {
			proxy = "PROXY"
		}
	}
	if proxy != "" && !p.proxies {
		r.bad(proxyProtocol, "is not possible with %s, where members see the client's own address; it is left out", p)
		return ""
	}
	return proxy
}

// monitor returns the health monitor that is asked for, nil for none, and whether it has to be left as it is.
func (r *reader) monitor(c *config) (*monitor, bool) {
	before := len(r.problems)
	on := r.flag(healthMonitor, c.monitor)
	delay := r.number(monitorDelay, 1, 1<<31-1, new(int64(5)))
	timeout := r.number(monitorTimeout, 1, 1<<31-1, new(int64(3)))
	retries := r.number(monitorMaxRetries, 1, 10, new(int64(3)))
	if len(r.problems) > before {
		return nil, true
	}
	if !on {
		return nil, false
	}
	if *timeout >= *delay {
		key := monitorTimeout
		if _, given := r.get(key); !given {
			key = monitorDelay
		}
		r.bad(key, "makes the timeout of %d s no shorter than the delay of %d s; %s", *timeout, *delay, kept)
		return nil, true
	}
	return &monitor{delay: *delay, timeout: *timeout, maxRetries: *retries}, false
}

// outside reads how the Service is to be reached from outside.
func (r *reader) outside() outside {
	before := len(r.problems)
	text := func(key string) string {
		if id := r.uuid(key); id != nil {
			return *id
		}
		return ""
	}
	out := outside{internal: r.flag(internalAnnotation, false), vipNet: text(vipNetwork), vipSub: text(vipSubnet)}
	out.unaimed = len(r.problems) > before
	out.network, out.subnet, out.keepOnDelete = text(floatingNetwork), text(floatingSubnet), r.flag(keepFloatingIP, false)
	out.unread = len(r.problems) > before
	out.keep = out.unread
	return out
}

// number returns the number that an annotation gives, fallback where it is not there, and nil where it is bad.
func (r *reader) number(key string, least, most int64, fallback *int64) *int64 {
	text, ok := r.get(key)
	if !ok {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		r.bad(key, "is no whole number from %d to %d; %s", least, most, kept)
		return nil
	}
	return &n
}

func (r *reader) flag(key string, fallback bool) bool {
	text, ok := r.get(key)
	if !ok {
		return fallback
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		r.bad(key, "is neither true nor false; %s", kept)
	}
	return on
}

// uuid returns the UUID that an annotation gives; nil where it is not there, empty or bad.
func (r *reader) uuid(key string) *string {
	text, ok := r.get(key)
	if !ok || text == "" {
		return nil
	}
	if !isUUID(text) {
		r.bad(key, "is no UUID; %s", kept)
		return nil
	}
	return new(strings.ToLower(text))
}

func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

func badProvider(name string) string {
	if len(name) > 64 || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_-.") != "" {
		return "is no name of a provider: letters, digits, dashes, dots and underscores"
	}
	return ""
}

// isUUID says whether the text is a UUID in the form that OpenStack gives.
func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return false
		}
	}
	return true
}
