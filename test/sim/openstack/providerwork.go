// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// work is something that a provider is done with at a time. Nothing runs for it: whoever reads the state first has
// done what is due.
type work struct {
	due time.Time
	seq int64
	lb  string
	do  func(t *tx)
}

// settle does the providers' work that is due, with the lock held.
func (c *Cloud) settle() {
	now := c.clock.Now()
	for len(c.work) > 0 && !c.work[0].due.After(now) {
		w := c.work[0]
		c.work = c.work[1:]
		t := &tx{c: c, who: scope{project: c.accounts.projects[ProjectAdmin], admin: true}, now: w.due}
		w.do(t)
	}
}

// piece is one thing that a provider has to do.
type piece struct {
	cost time.Duration
	do   func(t *tx)
}

// submit gives a provider work on a load balancer: pieces one after another. It must be the last thing that a request
// does, since it is not undone.
func (t *tx) submit(p *Provider, lb *object, pieces ...piece) {
	c := t.c
	if t.outcome == ActionProviderStall {
		return
	}
	if t.outcome == ActionProviderError {
		pieces = []piece{{pieces[0].cost, func(t *tx) { t.fail(lb) }}}
	}
	start, lane := t.now, -1
	if p.Lanes > 0 {
		lanes := c.lanes[p.Name]
		if lanes == nil {
			lanes = make([]time.Time, p.Lanes)
			c.lanes[p.Name] = lanes
		}
		lane = 0
		for i := range lanes {
			if lanes[i].Before(lanes[lane]) {
				lane = i
			}
		}
		if lanes[lane].After(start) {
			start = lanes[lane]
		}
	}
	for _, x := range pieces {
		start = start.Add(x.cost)
		c.enqueue(&work{due: start, lb: lb.id, do: x.do})
	}
	if lane >= 0 {
		c.lanes[p.Name][lane] = start
	}
}

func (c *Cloud) enqueue(w *work) {
	c.workSeq++
	w.seq = c.workSeq
	i := sort.Search(len(c.work), func(i int) bool { return c.work[i].due.After(w.due) })
	c.work = slices.Insert(c.work, i, w)
}

// carryOut submits the work on resources that are PENDING_*, below parents that are PENDING_UPDATE meanwhile.
func (t *tx) carryOut(lb *object, begin time.Duration, changed []*object, parents ...*object) {
	p := t.c.providerOf(lb)
	if len(changed) > 0 && changed[0].kind.name == "healthmonitor" && p.lacks(LackMonitoredUnlock) {
		parents = slices.DeleteFunc(slices.Clone(parents), func(o *object) bool { return o.kind.name == "listener" })
	}
	free := func(t *tx) {
		for _, o := range append(parents, lb) {
			if s := lbStatus(o); s == pendingCreate || s == pendingUpdate {
				t.finish(o, s)
			}
		}
	}
	was := make([]string, len(changed)) // a later request may want something else of it meanwhile
	for i, o := range changed {
		was[i] = lbStatus(o)
	}
	if !p.StepByStep || len(changed) == 0 {
		total := begin
		for _, o := range changed {
			total += p.cost(o)
		}
		t.submit(p, lb, piece{total, func(t *tx) {
			for i, o := range changed {
				t.finish(o, was[i])
			}
			free(t)
		}})
		return
	}
	pieces := make([]piece, 0, len(changed))
	for i, o := range changed {
		cost := p.cost(o)
		if i == 0 {
			cost += begin
		}
		pieces = append(pieces, piece{cost, func(t *tx) { t.finish(o, was[i]); free(t) }})
	}
	t.submit(p, lb, pieces...)
}

func (p *Provider) cost(o *object) time.Duration {
	switch o.kind.name {
	case "listener":
		return p.Work.Listener
	case "pool":
		return p.Work.Pool
	case "member":
		return p.Work.Member
	case "healthmonitor":
		return p.Work.Monitor
	}
	return 0
}

// finish ends a PENDING_* status as it should end, if it is that still.
func (t *tx) finish(o *object, was string) {
	if _, there := t.any(o.kind.name, o.id); !there || lbStatus(o) != was {
		return
	}
	switch lbStatus(o) {
	case pendingDelete:
		t.eraseBalancer(o)
	case pendingCreate, pendingUpdate:
		attrs := map[string]any{"provisioning_status": statusActive}
		if pool, ok := t.any("pool", str(o.doc, "pool_id")); ok && o.kind.name == "healthmonitor" &&
			t.c.providerOf(t.loadBalancerOf(o)).lacks(LackForeignMonitors) && !t.monitorable(pool) {
			t.lbSet(o, map[string]any{"provisioning_status": statusError, "operating_status": statusError})
			return
		}
		if lb := t.loadBalancerOf(o); lb != nil && t.c.providerOf(lb).Reports {
			attrs["operating_status"] = t.operating(o)
		}
		t.lbSet(o, attrs)
		if o.kind.name == "loadbalancer" {
			t.c.log.freed++
		}
	}
}

// operating is what a provider that reports says of something that works.
func (t *tx) operating(o *object) string {
	now := str(o.doc, "operating_status")
	switch {
	case !truth(o.doc, "admin_state_up"):
		return offline
	case o.kind.name == "member" && len(t.c.by("healthmonitor", "pool_id", str(o.doc, "pool_id"))) == 0:
		return noMonitor
	case o.kind.name == "member" && now == statusError:
		return now
	case o.kind.name == "pool" && len(t.c.by("member", "pool_id", o.id)) == 0 &&
		len(t.c.by("listener", "default_pool_id", o.id)) == 0:
		return offline
	}
	return online
}

// loadBalancerOf returns the load balancer that something belongs to, nil if that is gone.
func (t *tx) loadBalancerOf(o *object) *object {
	id := str(o.doc, "loadbalancer_id")
	switch o.kind.name {
	case "loadbalancer":
		return o
	case "member", "healthmonitor":
		pool, ok := t.any("pool", str(o.doc, "pool_id"))
		if !ok {
			return nil
		}
		id = str(pool.doc, "loadbalancer_id")
	}
	lb, ok := t.any("loadbalancer", id)
	if !ok {
		return nil
	}
	return lb
}

// tree returns everything that belongs to a load balancer, itself last.
func (t *tx) tree(lb *object) []*object {
	var out []*object
	for _, pool := range t.c.children("pool", "loadbalancer_id", lb.id) {
		out = append(out, t.c.children("member", "pool_id", pool.id)...)
		out = append(out, t.c.children("healthmonitor", "pool_id", pool.id)...)
		out = append(out, pool)
	}
	out = append(out, t.c.children("listener", "loadbalancer_id", lb.id)...)
	return append(out, lb)
}

// fail ends in ERROR what is PENDING_* of a load balancer, and itself.
func (t *tx) fail(lb *object) {
	for _, o := range t.tree(lb) {
		if o == lb || strings.HasPrefix(lbStatus(o), "PENDING_") {
			t.lbSet(o, map[string]any{"provisioning_status": statusError, "operating_status": statusError})
		}
	}
}

// SetError brings a load balancer to ERROR as a provider that failed does, with whatever of it was PENDING_*; its
// work is forgotten.
func (c *Cloud) SetError(loadBalancerID string) error {
	return c.interfere(loadBalancerID, func(t *tx, lb *object) { t.fail(lb) })
}

// SetProvisioningStatus sets a load balancer's status and forgets the work on it: PENDING_UPDATE is then for good,
// ACTIVE at once.
func (c *Cloud) SetProvisioningStatus(loadBalancerID, status string) error {
	return c.interfere(loadBalancerID, func(t *tx, lb *object) { t.setStatus(lb, status) })
}

func (c *Cloud) interfere(id string, do func(t *tx, lb *object)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	lb, ok := c.tables["loadbalancer"].byID[id]
	if !ok {
		return fmt.Errorf("changing the state of load balancer %q: there is none", id)
	}
	c.work = slices.DeleteFunc(c.work, func(w *work) bool { return w.lb == id })
	do(&tx{c: c, now: c.clock.Now()}, lb)
	return nil
}

// SetOperatingStatus sets what a provider reports of a resource ("member", "pool", "listener", "loadbalancer"), such
// as ERROR for a member whose health check fails.
func (c *Cloud) SetOperatingStatus(kind, id, status string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	t, ok := c.tables[kind]
	if !ok || t.byID[id] == nil {
		return fmt.Errorf("changing the operating status of %s %q: there is none", kind, id)
	}
	(&tx{c: c, now: c.clock.Now()}).lbSet(t.byID[id], map[string]any{"operating_status": status})
	return nil
}

// SetPartError brings a part of a load balancer ("listener", "pool", "member", "healthmonitor") to ERROR, and nothing
// else.
func (c *Cloud) SetPartError(kind, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	t, ok := c.tables[kind]
	if !ok || t.byID[id] == nil {
		return fmt.Errorf("bringing %s %q to ERROR: there is none", kind, id)
	}
	(&tx{c: c, now: c.clock.Now()}).lbSet(t.byID[id], map[string]any{"provisioning_status": statusError})
	return nil
}

// Busy returns how many load balancers are PENDING_*.
func (c *Cloud) Busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	n := 0
	for _, lb := range c.tables["loadbalancer"].byID {
		if strings.HasPrefix(lbStatus(lb), "PENDING_") {
			n++
		}
	}
	return n
}
