// SPDX-License-Identifier: Apache-2.0

// Package openstack is a simulated OpenStack cloud on loopback: Keystone v3, Neutron v2.0 and Octavia v2, stateful,
// with the real services' validation, error bodies, costs and, by rule, faults. It must never be lenient where the
// real services refuse: what they accept of a client here the real ones must accept, too.
//
// The files go by noun; those of Octavia are octavia*.go, loadbalancer.go, listener.go, pool.go, member.go,
// healthmonitor.go and provider*.go. A request passes: fault rules, authentication, a worker of the cost profile, the
// collection's validation under one lock (all of the request or nothing), the request log. The lock is never held
// while anything waits.
package openstack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Options are what a Cloud may be given. The zero Options make a cloud without cost, quotas or page limit.
type Options struct {
	// Clock decides token expiry, timestamps, costs and delays. Nil: the real one.
	Clock clock.Clock
	// Seed makes ids, MAC addresses and fault probabilities repeatable. 0: ids still differ from cloud to cloud.
	Seed uint64
	// TokenTTL is how long a token is valid. 0: one hour.
	TokenTTL time.Duration
	// Profile is what requests cost. Nil: None().
	Profile *Profile
	// Quotas are the default limits by resource name ("port", "security_group_rule"). Absent or negative: unlimited.
	Quotas map[string]int
	// DefaultRules are those that a new security group has, in Neutron's words; from 2023.2 an administrator chooses them.
	// Nil: everything may go out. The group "default" has its own whatever they are.
	DefaultRules []map[string]any
	// PageLimit is the longest page of a list (pagination_max_limit). 0: unlimited.
	PageLimit int
	// Password of every user. Empty: "secret".
	Password string
	// NoExternal leaves out the external network "public" with its subnet 172.24.4.0/24.
	NoExternal bool
	// MetadataPorts gives every network a port of the cloud's own ("network:distributed"), which takes an address of
	// every IPv4 subnet with DHCP: a Neutron with OVN and its metadata agent does so.
	MetadataPorts bool
	// LeakyBulk makes a bulk create of ports that finds a network full keep the addresses that it took for the others
	// until their subnets are deleted, as a Zed Neutron does.
	LeakyBulk bool
	// NoPortTags refuses tags in a port's create, as a Neutron without the ML2 extension driver for it does.
	NoPortTags bool
	// Providers of load balancers; the first is the default one. Nil: Amphora(Work{}) and OVN(Work{}), which are done at
	// once.
	Providers []Provider
	// NoOctavia leaves out Octavia, until SetOctavia.
	NoOctavia bool
	// NoAdditionalVIPs makes Octavia older than 2.26: load balancers have one address.
	NoAdditionalVIPs bool
	// NoAdditiveMembers has Octavia's API be of a release that ignores additive_only in a change of many members, as
	// before Train.
	NoAdditiveMembers bool
	// NoProtocols are protocols that Octavia does not know yet: it is older than 2.23 without SCTP, than 2.22 without
	// PROXYV2, and has no additional VIPs either.
	NoProtocols []string
	// LogSize bounds the request log; counts are kept beyond. 0: 100,000.
	LogSize int
}

// Cloud is a simulated cloud. It is an http.Handler, and serves itself between Start and Close.
type Cloud struct {
	opts    Options
	clock   clock.Clock
	kinds   map[string]*kind // Neutron's, by segment of the URL
	lbKinds map[string]*kind // Octavia's
	handler http.Handler
	profile *Profile
	workers *workers

	noOctavia atomic.Bool

	done chan struct{} // closed by Close: everything that waits gives up
	jobs sync.WaitGroup
	stop sync.Once

	mu       sync.Mutex
	closed   bool
	base     string // "http://127.0.0.1:1234"
	server   *http.Server
	serveErr chan error
	rand     *rand.Rand
	lastSeq  int64
	tables   map[string]*table // by kind name
	used     map[quotaKey]int
	limits   map[string]map[string]int // project, resource
	accounts accounts
	tokens   map[string]*token
	log      requestLog
	faults   []*fault
	faultSeq int
	faultRnd *rand.Rand
	hooks    []func(int, Request)

	work    []*work                // of the providers, by the time when it is done
	workSeq int64                  // of the last one
	lanes   map[string][]time.Time // by provider: until when each of its workers is busy
	flavors []flavor
	zones   []zone
}

// New makes a cloud with its projects, users and, unless told otherwise, an external network.
func New(o Options) *Cloud {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.TokenTTL == 0 {
		o.TokenTTL = time.Hour
	}
	if o.Password == "" {
		o.Password = "secret"
	}
	if o.LogSize == 0 {
		o.LogSize = 100_000
	}
	if o.Profile == nil {
		o.Profile = None()
	}
	if o.Providers == nil {
		o.Providers = []Provider{Amphora(Work{}), OVN(Work{})}
	}
	o.NoAdditionalVIPs = o.NoAdditionalVIPs || len(o.NoProtocols) > 0
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	c := &Cloud{
		opts: o, clock: o.Clock, kinds: kinds(), lbKinds: balancerKinds(), profile: o.Profile,
		workers: newWorkers(o.Profile.Workers),
		done:    make(chan struct{}), base: "http://127.0.0.1",
		rand:     rand.New(rand.NewPCG(seed, 1)),
		faultRnd: rand.New(rand.NewPCG(seed, 2)),
		tables:   map[string]*table{}, used: map[quotaKey]int{}, limits: map[string]map[string]int{},
		tokens: map[string]*token{},
		log:    newRequestLog(o.LogSize),
		lanes:  map[string][]time.Time{},
	}
	for _, of := range []map[string]*kind{c.kinds, c.lbKinds} {
		for _, k := range of {
			c.tables[k.name] = newTable(k)
		}
	}
	c.noOctavia.Store(o.NoOctavia)
	if o.NoAdditionalVIPs {
		delete(c.lbKinds["loadbalancers"].fields, "additional_vips")
	}
	c.accounts = newAccounts(c, o.Password)
	if !o.NoExternal {
		c.addExternal()
	}
	c.handler = c.routes()
	return c
}

// Start listens on addr ("127.0.0.1:0" if empty) until ctx ends or Close, and returns the base URL, which has no
// slash at its end: Keystone is at base + "/v3", Neutron at base + "/networking", Octavia at base + "/load-balancer".
func (c *Cloud) Start(ctx context.Context, addr string) (string, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("listening for the simulated cloud: %w", err)
	}
	c.mu.Lock()
	if c.closed || c.server != nil {
		c.mu.Unlock()
		return "", errors.Join(errors.New("the simulated cloud was started before"), l.Close())
	}
	c.base = "http://" + l.Addr().String()
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 30 * time.Second, ErrorLog: discardLog()}
	c.serveErr = make(chan error, 1)
	server, base, serveErr := c.server, c.base, c.serveErr
	c.mu.Unlock()
	c.jobs.Go(func() { serveErr <- server.Serve(l) })
	unhook := context.AfterFunc(ctx, c.shutdown)
	c.jobs.Go(func() { <-c.done; unhook() })
	return base, nil
}

// Close cuts every connection, gives up what waits, and returns when nothing of the cloud runs any more. The state
// can still be read.
func (c *Cloud) Close() {
	c.shutdown()
	c.jobs.Wait()
}

func (c *Cloud) shutdown() {
	c.stop.Do(func() {
		c.mu.Lock()
		c.closed = true
		server := c.server
		c.mu.Unlock()
		close(c.done)
		if server != nil {
			_ = server.Close() // the listener and the connections; nothing to be done about an error
		}
	})
}

// BaseURL returns what Start returned.
func (c *Cloud) BaseURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base
}

// AuthURL returns Keystone's URL.
func (c *Cloud) AuthURL() string { return c.BaseURL() + "/v3" }

// NetworkURL returns Neutron's URL, as the catalogue has it.
func (c *Cloud) NetworkURL() string { return c.BaseURL() + "/networking" }

// LoadBalancerURL returns Octavia's URL, as the catalogue has it.
func (c *Cloud) LoadBalancerURL() string { return c.BaseURL() + "/load-balancer" }

// SetOctavia has Octavia come or go, with its place in the catalogue. What it made stays.
func (c *Cloud) SetOctavia(there bool) { c.noOctavia.Store(!there) }

// wait waits for d, and returns false if the cloud was closed or ctx ended meanwhile.
func (c *Cloud) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := c.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	case <-c.done:
		return false
	}
}
