// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/service/openstack"
)

// Stats is what was asked of the cloud since the connection was made, and how requests and batches are paced now.
type Stats struct {
	openstack.Stats
	// Batch is, by kind, how many resources go in one create now; Queued how many wait to be created.
	Batch  map[string]int `json:"batch"`
	Queued map[string]int `json:"queued"`
	// Events counts "divided" requests (one member was refused) and "undivided" members (told to come again).
	Events map[string]int64 `json:"events,omitempty"`
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	out := Stats{Stats: c.connection.Stats(), Batch: map[string]int{}, Queued: map[string]int{}}
	c.mu.Lock()
	out.Events = maps.Clone(c.events)
	c.mu.Unlock()
	for name, b := range c.batchers {
		out.Batch[string(name)], out.Queued[string(name)] = b.sizes.current(), b.waiting()
	}
	return out
}

// The events that are counted.
const (
	eventDivided   = "divided"
	eventUndivided = "undivided"
)

func (c *Client) count(event string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[event] += int64(n)
}

// Collector returns the connection's metrics and those of batches, under raven_openstack_.
func (c *Client) Collector() prometheus.Collector {
	desc := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("raven_openstack_"+name, help, []string{label}, nil)
	}
	return &collector{
		Collector: c.connection.Collector(), client: c,
		batch:  desc("batch_size", "Resources that go in one create.", "kind"),
		queued: desc("queued", "Resources that wait to be created.", "kind"),
		events: desc("events_total", "Bulk requests divided, and members sent back.", "event"),
	}
}

type collector struct {
	prometheus.Collector  // the connection's
	client                *Client
	batch, queued, events *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	c.Collector.Describe(to)
	for _, d := range []*prometheus.Desc{c.batch, c.queued, c.events} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.Collector.Collect(to)
	s := c.client.Stats()
	for _, event := range []string{eventDivided, eventUndivided} {
		to <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(s.Events[event]), event)
	}
	for kind, n := range s.Batch {
		to <- prometheus.MustNewConstMetric(c.batch, prometheus.GaugeValue, float64(n), kind)
	}
	for kind, n := range s.Queued {
		to <- prometheus.MustNewConstMetric(c.queued, prometheus.GaugeValue, float64(n), kind)
	}
}
