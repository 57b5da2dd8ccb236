// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// settings are what a Service's annotations and the options come to. A pointer that is nil, or a part that is said to
// be kept, is not managed: what there is stays as it is.
type settings struct {
	provider  provider
	algorithm string
	proxy     string // PROXY or PROXYV2; empty: none
	// connectionLimit is -1 for none.
	connectionLimit *int64
	// timeouts are in milliseconds; one that is not set has Octavia's default.
	timeoutClient, timeoutConnect, timeoutMember *int64
	flavor, zone                                 *string
	// monitor is nil if there is none, unless keepMonitor.
	monitor     *monitor
	keepMonitor bool
	outside     services.Outside
}

type monitor struct{ delay, timeout, maxRetries int64 }

// reader reads annotations.
type reader struct {
	services.Reader
	// lacks are the annotations whose values are bad though nothing was made yet whose own could stay.
	lacks []string
}

// read returns what a Service wants, and whether that is known yet. Only with needs it learns what there is of what
// cannot be read. The error names what cannot be described without it.
func (c *config) read(s *services.Service, needs *drivers.Needs) (settings, bool, error) {
	r := reader{Reader: c.Reader(s, needs)}
	out := r.all(c)
	r.Spec(s, &out.outside)
	if _, limited := c.Limits(s, out.outside); limited && out.outside.Unread {
		out.outside.There = r.There()
	}
	if len(r.lacks) > 0 && !r.Waiting {
		return out, true,
			fmt.Errorf("%s: the Service gets no load balancer until annotation %s is put right", strings.Join(r.Problems, "; "),
				strings.Join(r.lacks, ", "))
	}
	return out, !r.Waiting, nil
}

// missing notes that a value is bad and that there is none that could stay.
func (r *reader) missing(key string) {
	if r.Unclassed {
		key = services.ClassAnnotation
	}
	if !slices.Contains(r.lacks, key) {
		r.lacks = append(r.lacks, key)
	}
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
	problem := badProvider(name)
	if problem == "" {
		return providerOf(name)
	}
	r.Bad(services.ProviderAnnotation, "%s; %s", problem, services.Kept)
	there := balancerOf(r.Last())
	if there.Provider == "" {
		r.missing(services.ProviderAnnotation)
	}
	p := providerOf(there.Provider)
	p.additionalVIPs = len(there.AdditionalVIPs) > 0 // whatever was known of it when the load balancer was made
	return p
}

// algorithm returns the one that is asked for, or the nearest that the provider has; the one that there is where that
// cannot be read.
func (r *reader) algorithm(c *config, p *provider) string {
	wanted := c.algorithm
	text, ok := r.Get(services.LBMethod)
	if ok {
		wanted = strings.ToUpper(text)
	}
	switch bad := ok && !slices.Contains(algorithms(), wanted); {
	case bad || !ok && r.Unclassed:
		if bad {
			r.Bad(services.LBMethod, "is none of %s; %s", strings.Join(algorithms(), ", "), services.Kept)
		}
		if wanted = algorithmOf(r.Last()); wanted == "" {
			r.missing(services.LBMethod)
		}
	case ok && !p.has(wanted):
		r.Bad(services.LBMethod, "is not possible with %s; %s is used", p, p.algorithms[0])
	}
	if p.has(wanted) {
		return wanted
	}
	return p.algorithms[0]
}

// proxy returns the PROXY protocol that is asked for; the one that there is where that cannot be read.
func (r *reader) proxy(p *provider) string {
	text, ok := r.Get(services.ProxyProtocol)
	if !ok && !r.Unclassed {
		return ""
	}
	proxy, readable := proxyOf(text)
	if !readable || !ok {
		if ok {
			r.Bad(services.ProxyProtocol, "is none of true, false, v1, v2; %s", services.Kept)
		}
		var known bool
		if proxy, known = proxyOfPools(r.Last()); !known {
			r.missing(services.ProxyProtocol)
		}
	}
	if proxy != "" && !p.proxies {
		if ok {
			r.Bad(services.ProxyProtocol,
				"is not possible with %s, where members see the client's own address; it is left out", p)
		}
		return ""
	}
	return proxy
}

// proxyOf reads the value of the annotation.
func proxyOf(text string) (proxy string, ok bool) {
	switch strings.ToLower(text) {
	case "v1":
		return proxyV1, true
	case "v2":
		return proxyV2, true
	}
	on, err := strconv.ParseBool(text)
	if on {
		return proxyV1, true
	}
	return "", err == nil
}

// monitor returns the health monitor that is asked for, nil for none, and whether it has to be left as it is.
func (r *reader) monitor(c *config) (*monitor, bool) {
	before := len(r.Problems)
	if r.Unclassed {
		before = -1
	}
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
