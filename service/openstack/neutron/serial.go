// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
)

// serialFor is how long ports of a network are created one by one after a create of many found it full.
const serialFor = 15 * time.Minute

// serialMode remembers the networks whose ports must be created one by one. A create of many that finds no address for
// one of them must never be repeated: Neutron has then taken addresses for the others, makes none of the ports, and in
// some releases (Zed among them) never gives those addresses back before the subnet is deleted. Such a create eats up
// all that is left.
type serialMode struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	until map[string]time.Time // by network
}

func newSerialMode(clk clock.PassiveClock) *serialMode {
	return &serialMode{clock: clk, until: map[string]time.Time{}}
}

// enter learns that a create of many met a full network.
func (s *serialMode) enter(network string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[network] = s.clock.Now().Add(serialFor)
}

// on says whether a network's ports are to be created one by one.
func (s *serialMode) on(network string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, known := s.until[network]
	if known && !s.clock.Now().Before(until) {
		delete(s.until, network)
		return false
	}
	return known
}

// KnowRoom tells how many addresses are free for ports of a network, where that is known: no more of its ports are then
// created together. The last one that was set counts; room must neither block nor ask the Cloud.
func (c *Client) KnowRoom(room func(networkID string) (free int, known bool)) { c.room.Store(&room) }

// network is where an item takes its addresses, or empty.
func (it *item) network() string {
	network, _ := it.attrs["network_id"].(string)
	return network
}

// alone says whether an item must have a request of its own.
func (b *batcher) alone(it *item) bool {
	return it.single || b.kind.Kind == drivers.KindPort && b.client.serial.on(it.network())
}

// companion gives out which of the pending items may go into one request.
type companion struct {
	batcher *batcher
	picked  []*item
	on      map[string]int // ports picked, by network
}

// takes says whether the item may join those that are picked.
func (c *companion) takes(it *item) bool {
	b := c.batcher
	if len(c.picked) == 0 {
		return true
	}
	if within := b.kind.within; within != "" && it.attrs[within] != c.picked[0].attrs[within] {
		return false
	}
	if b.alone(c.picked[0]) || b.alone(it) {
		return false
	}
	if b.kind.Kind != drivers.KindPort {
		return true
	}
	room := b.client.room.Load()
	if room == nil {
		return true
	}
	free, known := (*room)(it.network())
	return !known || c.on[it.network()]+b.outstanding[it.network()] < free
}

func (c *companion) pick(it *item) {
	c.picked = append(c.picked, it)
	if c.batcher.kind.Kind == drivers.KindPort {
		c.on[it.network()]++
	}
}

// settled gives back the places of a batch that is answered.
func (b *batcher) settled(batch []*item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range batch {
		network := it.network()
		if b.outstanding[network]--; b.outstanding[network] <= 0 {
			delete(b.outstanding, network)
		}
	}
}
