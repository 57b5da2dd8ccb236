// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"time"
)

// Cost is what one request of a kind costs: Base + n*PerItem + n²*Tail, and for every other worker that is busy
// BusyBase + n*BusyPerItem more, since workers share a machine. Items are resources written, or listed.
type Cost struct {
	Base, PerItem, Tail   time.Duration
	BusyBase, BusyPerItem time.Duration
}

func (c Cost) of(items, busyOthers int) time.Duration {
	n := time.Duration(items)
	return c.Base + n*c.PerItem + n*n*c.Tail + time.Duration(busyOthers)*(c.BusyBase+n*c.BusyPerItem)
}

// Profile is what requests cost, and how many the cloud works on at once.
type Profile struct {
	Name string
	// Workers is how many requests are worked on at once; the others wait. 0: all.
	Workers int
	// Scale divides every cost. 0: 1.
	Scale float64
	// Costs by method and kind ("POST port"). "GET *" and the like stand for all other kinds of a method, "narrow" for
	// lists with fields.
	Costs map[string]Cost
}

// None costs nothing.
func None() *Profile { return &Profile{Name: "none"} }

// Flat makes every request to Neutron cost d, with as many workers as there are requests. Tokens and discovery are
// free.
func Flat(d time.Duration) *Profile {
	costs := map[string]Cost{"POST token": {}}
	for _, m := range []string{"GET", "POST", "PUT", "DELETE"} {
		costs[m+" *"] = Cost{Base: d}
		costs[m+" version"] = Cost{}
	}
	costs["narrow"] = Cost{Base: d}
	return &Profile{Name: "flat", Costs: costs}
}

// LabLike is fitted to a real Neutron 21 with ML2/OVN on two cores and two API workers, every cost divided by scale
// (0: 1).
//
//	measured: POST port 0.403 s, bulk of 10 in 2.97 s, of 50 in 19.8 s, of 100 in 53.3 s
//	fitted:   0.15 s + n*0.2535 s + n²*0.002788 s, which is within 1 % of each
//
// With two clients singles rose from 2.6 to 2.9 ports/s only, bulks of 20 from 2.8 to 5.0: a busy other worker costs
// 0.22 s + n*0.05 s. What was not measured (floating IPs, subnet pools, updates and deletions other than of ports,
// bulks of networks) takes the costs of its nearest relative.
func LabLike(scale float64, workers int) *Profile {
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	one := func(n float64) Cost { // a write of one resource: half of it for the request, half for the item
		return Cost{Base: ms(n * 0.3), PerItem: ms(n * 0.7), BusyBase: ms(n * 0.5), BusyPerItem: ms(n * 0.1)}
	}
	if workers == 0 {
		workers = 2
	}
	return &Profile{Name: "lab", Workers: workers, Scale: scale, Costs: map[string]Cost{
		"POST token": {Base: ms(47)},
		"POST port": {
			Base: ms(150), PerItem: ms(253.5), Tail: ms(2.788), BusyBase: ms(220), BusyPerItem: ms(50),
		},
		"POST network":                one(304),
		"POST subnet":                 one(570),
		"POST router":                 one(211),
		"POST *":                      one(403),
		"POST subnetpool":             one(100),
		"POST security_group":         one(100),
		"POST security_group_rule":    {Base: ms(30), PerItem: ms(67.4), BusyBase: ms(20), BusyPerItem: ms(10)},
		"PUT add_router_interface":    one(1762),
		"PUT remove_router_interface": one(972),
		"PUT tag":                     {Base: ms(31)},
		"DELETE tag":                  {Base: ms(31)},
		"PUT member_batch":            {Base: ms(200)}, // its members are the provider's work: see LabAmphora and LabOVN
		"PUT *":                       one(232),
		"DELETE *":                    one(232),
		"GET *":                       {Base: ms(37.3), PerItem: ms(1.7)}, // one: 39; 100: 209
		"narrow":                      {Base: ms(37.3), PerItem: ms(0.68)},
		"GET version":                 {},
	}}
}

// find returns the cost of a kind of request before scaling.
func (p *Profile) find(method, kind string, narrow bool) Cost {
	if method == "HEAD" {
		method = "GET"
	}
	if c, ok := p.Costs[method+" "+kind]; ok {
		return c
	}
	if narrow {
		return p.Costs["narrow"]
	}
	return p.Costs[method+" *"]
}

// Price returns what a request costs that writes or lists so many resources while other workers are busy.
func (p *Profile) Price(method, kind string, items, busyOthers int) time.Duration {
	return p.cost(method, kind, items, false, busyOthers)
}

func (p *Profile) cost(method, kind string, items int, narrow bool, busyOthers int) time.Duration {
	d := p.find(method, kind, narrow).of(items, busyOthers)
	if p.Scale > 0 {
		d = time.Duration(float64(d) / p.Scale)
	}
	return d
}

// BestThroughput returns how many resources of a kind ("port") per second the workers could create at best, all of
// them busy all the time with requests of the best size, and that size. A profile without cost or without a bound on
// its workers has no best: 0, 0.
func (p *Profile) BestThroughput(kind string) (perSecond float64, batch int) {
	if p.Workers == 0 {
		return 0, 0
	}
	const largest = 200
	for n := 1; n <= largest; n++ {
		d := p.cost("POST", kind, n, false, p.Workers-1)
		if d <= 0 {
			return 0, 0
		}
		if rate := float64(n*p.Workers) / d.Seconds(); rate > perSecond {
			perSecond, batch = rate, n
		}
	}
	return perSecond, batch
}

// BestThroughput is the profile's.
func (c *Cloud) BestThroughput(kind string) (perSecond float64, batch int) {
	return c.profile.BestThroughput(kind)
}

// workers bounds how many requests are worked on at once.
type workers struct{ slots chan struct{} }

func newWorkers(n int) *workers {
	if n == 0 {
		return &workers{}
	}
	return &workers{slots: make(chan struct{}, n)}
}

// acquire waits for a worker, in the order of arrival. It gives up when done is closed.
func (w *workers) acquire(done <-chan struct{}) (release func(), ok bool) {
	if w.slots == nil {
		return func() {}, true
	}
	select {
	case w.slots <- struct{}{}:
		return func() { <-w.slots }, true
	case <-done:
		return nil, false
	}
}

func (w *workers) busyOthers() int { return max(0, len(w.slots)-1) }
