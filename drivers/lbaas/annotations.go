package lbaas

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers/internal/services"
)

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
	outside     services.Outside
}

type monitor struct{ delay, timeout, maxRetries int64 }

// reader reads annotations.
type reader struct{ services.Reader }

// read returns what a Service wants. The error names what cannot be read and cannot be kept by itself.
func (c *config) read(s *services.Service) (settings, error) {
	r := reader{c.Reader(s)}
	out := r.all(c)
	err := r.Settled(s, &out.outside)
	return out, err
}

// all reads every annotation that a class may have, and the provider.
func (r *reader) all(c *config) settings {
	var out settings
	out.provider = r.provider(c)
	out.algorithm = r.algorithm(c, &out.provider)
	out.proxy = r.proxy(&out.provider)
	out.connectionLimit = r.Number(services.ConnectionLimit, -1, 1<<31-1, new(int64(-1)))
	out.timeoutClient = r.Number(services.TimeoutClient, 0, maxTimeout, positive(c.timeoutClient))
	out.timeoutConnect = r.Number(services.TimeoutConnect, 0, maxTimeout, nil)
	out.timeoutMember = r.Number(services.TimeoutMember, 0, maxTimeout, positive(c.timeoutMember))
	out.flavor = r.UUID(services.FlavorID)
	if zone, ok := r.Get(services.AvailabilityZone); ok && zone != "" {
		out.zone = &zone
	}
	out.monitor, out.keepMonitor = r.monitor(c)
	out.outside = r.Outside()
	return out
}

func (r *reader) provider(c *config) provider {
	name, ok := r.Get(services.ProviderAnnotation)
	if !ok {
		return providerOf(c.provider)
	}
	if problem := badProvider(name); problem != "" {
		r.Settle(services.ProviderAnnotation, "%s", problem)
	}
	return providerOf(name)
}

// algorithm returns the one that is asked for, or the nearest that the provider has.
func (r *reader) algorithm(c *config, p *provider) string {
	wanted := c.algorithm
	if text, ok := r.Get(services.LBMethod); ok {
		wanted = strings.ToUpper(text)
		if !slices.Contains(algorithms(), wanted) {
			r.Settle(services.LBMethod, "is none of %s", strings.Join(algorithms(), ", "))
		} else if !p.has(wanted) {
			r.Bad(services.LBMethod, "is not possible with %s; %s is used", p, p.algorithms[0])
		}
	}
	if p.has(wanted) {
		return wanted
	}
	return p.algorithms[0]
}

func (r *reader) proxy(p *provider) string {
	text, ok := r.Get(services.ProxyProtocol)
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
			r.Settle(services.ProxyProtocol, "is none of true, false, v1, v2")
		}
		if on {
			proxy = "PROXY"
		}
	}
	if proxy != "" && !p.proxies {
		r.Bad(services.ProxyProtocol, "is not possible with %s, where members see the client's own address; it is left out", p)
		return ""
	}
	return proxy
}

// monitor returns the health monitor that is asked for, nil for none, and whether it has to be left as it is.
func (r *reader) monitor(c *config) (*monitor, bool) {
	before := len(r.Problems)
	on := r.Flag(services.HealthMonitor, c.monitor)
	delay := r.Number(services.MonitorDelay, 1, 1<<31-1, new(int64(5)))
	timeout := r.Number(services.MonitorTimeout, 1, 1<<31-1, new(int64(3)))
	retries := r.Number(services.MonitorMaxRetries, 1, 10, new(int64(3)))
	if len(r.Problems) > before {
		return nil, true
	}
	if !on {
		return nil, false
	}
	if *timeout >= *delay {
		key := services.MonitorTimeout
		if _, given := r.Get(key); !given {
			key = services.MonitorDelay
		}
		r.Bad(key, "makes the timeout of %d s no shorter than the delay of %d s; %s", *timeout, *delay, services.Kept)
		return nil, true
	}
	return &monitor{delay: *delay, timeout: *timeout, maxRetries: *retries}, false
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
