// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"math/bits"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// item is one resource to create.
type item struct {
	identity plan.Identity
	attrs    map[string]any
	gone     <-chan struct{} // its caller no longer waits
	single   bool            // a probe: it has a request of its own
	done     chan struct{}   // closed when found or err is set

	found plan.Observed
	err   error
	text  string // the attributes as JSON, made when needed
}

// batcher creates resources of one kind by group commit: whatever waits when a request slot is free goes together, up
// to the size that pays. There is no timer: one that comes alone goes at once.
type batcher struct {
	client *Client
	kind   kind
	sizes  *sizer

	mu      sync.Mutex
	pending []*item
	running bool
	flying  int // requests
	// outstanding counts the ports in requests, by network.
	outstanding map[string]int
	probe       probe
}

func (b *batcher) create(ctx context.Context, identity plan.Identity, attrs map[string]any) (plan.Observed, error) {
	it := &item{identity: identity, attrs: attrs, gone: ctx.Done(), done: make(chan struct{})}
	r := openstack.Call{Op: openstack.OpCreate, Collection: b.kind.Collection, What: identity.Name, Create: true}
	ended := b.queue(ctx, it)
	defer ended()
	if err := b.client.connection.Ended(ctx); err != nil {
		return plan.Observed{}, openstack.NewError(r, err, false)
	}
	b.mu.Lock()
	b.pending = append(b.pending, it)
	if !b.running {
		b.running = true
		b.client.connection.Go(func() { b.dispatch(context.WithoutCancel(ctx)) })
	}
	b.mu.Unlock()
	select {
	case <-it.done:
		return it.found, it.err
	case <-ctx.Done():
		if b.withdraw(it) {
			return plan.Observed{}, openstack.NewError(r, ctx.Err(), false)
		}
		return plan.Observed{}, openstack.NewError(r, ctx.Err(), true).For(identity)
	}
}

// withdraw takes an item back that is not in a request yet.
func (b *batcher) withdraw(it *item) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.pending {
		if other == it {
			b.pending = append(b.pending[:i], b.pending[i+1:]...)
			return true
		}
	}
	return false
}

// dispatch sends what is pending, a batch per slot, until nothing is.
func (b *batcher) dispatch(ctx context.Context) {
	for {
		if err := b.client.service.Acquire(ctx); err != nil {
			b.fail(err)
			return
		}
		b.gather()
		batch := b.take()
		if len(batch) == 0 {
			b.client.service.Release()
			if b.idle() {
				return
			}
			continue
		}
		b.client.connection.Go(func() {
			defer b.client.service.Release()
			defer b.settled(batch)
			b.send(ctx, batch)
		})
		if b.idle() {
			return
		}
	}
}

// gather lets callers that are ready to run get into the batch: it yields for as long as that makes more of them. It
// waits for no caller.
func (b *batcher) gather() {
	const yields = 16
	for before, i := -1, 0; i < yields; i++ {
		n := b.waiting()
		if n == before || n >= b.sizes.current() {
			return
		}
		before = n
		runtime.Gosched()
	}
}

// idle ends the dispatcher if nothing is pending; the next create starts another.
func (b *batcher) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 {
		b.running = false
	}
	return !b.running
}

func (b *batcher) take() []*item {
	limit := b.client.service.Limit()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pick(b.sizes.next(len(b.pending), limit))
}

// pick takes up to n of the pending items that may go into one request with the first; the caller holds the lock.
func (b *batcher) pick(n int) []*item {
	c := companion{batcher: b, on: map[string]int{}}
	var left []*item
	for i, it := range b.pending {
		if len(c.picked) == n {
			if left = append(left, b.pending[i:]...); i == n {
				left = b.pending[n:]
			}
			break
		}
		if c.takes(it) {
			c.pick(it)
		} else {
			left = append(left, it)
		}
	}
	b.pending = left
	for network, ports := range c.on {
		b.outstanding[network] += ports
	}
	return c.picked
}

func (b *batcher) fail(err error) {
	b.mu.Lock()
	failed := b.pending
	b.pending, b.running = nil, false
	b.mu.Unlock()
	for _, it := range failed {
		r := openstack.Call{Op: openstack.OpCreate, Collection: b.kind.Collection, What: it.identity.Name}
		it.finish(plan.Observed{}, openstack.NewError(r, err, false))
	}
}

func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}

// fly counts a request that begins or ends, and returns how many there are then.
func (b *batcher) fly(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying += n
	return b.flying
}

func (it *item) finish(found plan.Observed, err error) {
	it.found, it.err = found, err
	close(it.done)
}

// send creates a batch. The request is given up when all its callers are.
func (b *batcher) send(ctx context.Context, batch []*item) {
	ctx, cancel := context.WithCancel(ctx)
	finished := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for _, it := range batch {
			select {
			case <-it.gone:
			case <-finished:
				return
			}
		}
		cancel()
	})
	budget := 4*bits.Len(uint(len(batch))) + 4
	b.divide(ctx, batch, &budget)
	close(finished)
	watch.Wait()
	cancel()
}

// divide creates a group. If the request fails for the sake of one of its members, those that it names are set aside
// and the others tried again; where it names none, the halves are tried. What is proven of one member alone holds for
// those that are refused for the same reason. The number of requests is bounded; members left over are told to come
// again.
func (b *batcher) divide(ctx context.Context, group []*item, budget *int) {
	for len(group) > 0 {
		if *budget--; *budget < 0 {
			b.client.count(eventUndivided, len(group))
			for _, it := range group {
				it.finish(plan.Observed{}, (&openstack.Error{
					Op: openstack.OpCreate, Kind: b.kind.Kind, Class: openstack.ClassRetry,
					Message: "too many others in the same request were refused",
				}).For(it.identity))
			}
			return
		}
		started, before := b.client.clock.Now(), b.fly(1)
		found, failure := b.client.createMany(ctx, b.kind, group)
		after := b.fly(-1) + 1
		switch {
		case failure == nil:
			b.sizes.observe(len(group), b.client.clock.Since(started), float64(before+after)/2, b.waiting())
			for i, it := range group {
				it.finish(found[i], nil)
			}
			return
		case !failure.Individual() || len(group) == 1:
			if failure.Overload() || failure.Status == 413 {
				b.sizes.failed(len(group))
			}
			for _, it := range group {
				it.finish(plan.Observed{}, failure.For(it.identity))
			}
			return
		}
		b.client.count(eventDivided, 1)
		if failure.Class == openstack.ClassSubnetFull {
			group = b.oneByOne(ctx, group, failure)
			continue
		}
		guilty, others := accused(group, failure)
		if len(guilty) > 0 {
			for _, it := range guilty {
				it.finish(plan.Observed{}, failure.For(it.identity))
			}
			group = others
			continue
		}
		first := group[:len(group)/2]
		b.divide(ctx, first, budget)
		group = likewise(first, group[len(group)/2:])
	}
}

// oneByOne creates those members of a group one by one whose network is full, and returns the others.
func (b *batcher) oneByOne(ctx context.Context, group []*item, failure *openstack.Error) []*item {
	var full, others []*item
	for _, it := range group {
		if it.named(failure.Message) {
			full = append(full, it)
		} else {
			others = append(others, it)
		}
	}
	if len(full) == 0 {
		full, others = group, nil // it does not say which
	}
	for _, it := range full {
		b.client.serial.enter(it.network())
	}
	for len(full) > 0 {
		it := full[0]
		found, failure := b.client.createMany(ctx, b.kind, full[:1])
		if failure != nil {
			it.finish(plan.Observed{}, failure.For(it.identity))
		} else {
			it.finish(found[0], nil)
		}
		full = likewise(full[:1], full[1:])
	}
	return others
}

// accused parts a group by whether a refusal names something that only a member with that fault can have: an address
// that is in use, or a thing that is not there. A full subnet is not such a fault: some members may still find room.
func accused(group []*item, failure *openstack.Error) (guilty, others []*item) {
	if failure.Class != openstack.ClassNotFound && failure.Class != openstack.ClassExists {
		return nil, group
	}
	for _, it := range group {
		if it.named(failure.Message) {
			guilty = append(guilty, it)
		} else {
			others = append(others, it)
		}
	}
	return guilty, others
}

// likewise takes from a group those members for which nothing can be hoped since another one, alone, was refused for a
// reason that holds for them too: no room in a network that they want to be in as well.
func likewise(tried, group []*item) []*item {
	for _, other := range tried {
		var failure *openstack.Error
		e, ok := other.err.(*openstack.Error) //nolint:errorlint // set by this file, unwrapped
		if ok && e.Class == openstack.ClassSubnetFull {
			failure = e
		}
		if failure == nil || !other.named(failure.Message) {
			continue
		}
		var rest []*item
		for _, it := range group {
			if it.named(failure.Message) && it.sameSubnets(other) {
				it.finish(plan.Observed{}, failure.For(it.identity))
			} else {
				rest = append(rest, it)
			}
		}
		group = rest
	}
	return group
}

// names matches what a refusal may name: a UUID, a MAC address, an IPv4 or IPv6 address or range.
var names = regexp.MustCompile(`(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|` +
	`\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?|[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){2,7}(?:/\d+)?`)

// named says whether a message names something that stands in the item's attributes.
func (it *item) named(message string) bool {
	if it.text == "" {
		text, err := json.Marshal(it.attrs)
		if err != nil {
			return false
		}
		it.text = strings.ToLower(string(text))
	}
	for _, name := range names.FindAllString(strings.ToLower(message), -1) {
		if strings.Contains(it.text, `"`+name+`"`) {
			return true
		}
	}
	return false
}

func (it *item) sameSubnets(other *item) bool {
	mine, errMine := json.Marshal(it.attrs["fixed_ips"])
	others, errOther := json.Marshal(other.attrs["fixed_ips"])
	return errMine == nil && errOther == nil && string(mine) == string(others)
}
