// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Status says how the connection stands.
type Status struct {
	Connected bool      `json:"connected"`
	Endpoint  string    `json:"endpoint,omitempty"` // of the server that is written to
	Version   string    `json:"version,omitempty"`  // northd's own, where it tells
	Outdated  string    `json:"outdated,omitempty"` // what an OVN of that version does not do of what is asked of it
	Since     time.Time `json:"since"`              // of that it is connected, or not
	Error     string    `json:"error,omitempty"`    // why it is not
	// Balancers and Groups count what is Raven's, Rows the rows of load balancers.
	Balancers int `json:"balancers"`
	Groups    int `json:"groups"`
	Rows      int `json:"rows"`
	// Transactions counts by result: committed, refused, unanswered.
	Transactions map[string]int64 `json:"transactions,omitempty"`
	Connections  int64            `json:"connections"`
}

// Status says how the connection stands now.
func (n *Northbound) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{
		Connected: n.session != nil, Since: n.since, Balancers: len(n.index.rowsOf), Groups: len(n.index.groupsOf),
		Rows: len(n.index.balancers),
	}
	if n.session != nil {
		s.Endpoint = n.session.endpoint
		s.Version = n.session.version()
		s.Outdated = outdated(s.Version)
	} else if n.err != nil {
		s.Error = n.err.Error()
	}
	s.Transactions, s.Connections = n.stats.counts()
	return s
}

// outdated says what an OVN of a version ignores of our rows; "" where that is nothing, or it has not told its
// version. By OVN's release notes flows to removed backends go since 23.03: its option ct_flush for that came with
// 23.03.1.
func outdated(version string) string {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	year, err1 := strconv.Atoi(major)
	month, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil || year*100+month >= 2303 {
		return ""
	}
	return "UDP flows to an endpoint that is gone go on (OVN 23.03 and newer end them)"
}

// stats counts what was written.
type stats struct {
	mu           sync.Mutex
	transactions map[string]int64
	connections  int64

	seconds    *prometheus.HistogramVec
	operations prometheus.Counter
}

func newStats() *stats {
	s := &stats{
		transactions: map[string]int64{},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "raven_ovn_transaction_seconds",
			Help:    "Time from sending a transaction to the northbound database to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"result"}),
		operations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "raven_ovn_operations_total",
			Help: "Operations in the transactions that were sent to the northbound database.",
		}),
	}
	for _, result := range []string{"committed", "refused", "unanswered"} {
		s.seconds.WithLabelValues(result)
	}
	return s
}

func (s *stats) transaction(result string, operations int, took time.Duration) {
	s.mu.Lock()
	s.transactions[result]++
	s.mu.Unlock()
	s.seconds.WithLabelValues(result).Observe(took.Seconds())
	s.operations.Add(float64(operations))
}

func (s *stats) connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
}

func (s *stats) counts() (transactions map[string]int64, connections int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	transactions = make(map[string]int64, len(s.transactions))
	for result, count := range s.transactions {
		transactions[result] = count
	}
	return transactions, s.connections
}

// Collector returns the metrics, under raven_ovn_.
func (n *Northbound) Collector() prometheus.Collector {
	return &collector{
		northbound: n,
		up: prometheus.NewDesc("raven_ovn_connected", "1 while there is a connection to the northbound database.",
			nil, nil),
		connections: prometheus.NewDesc("raven_ovn_connections_total", "Connections that were made.", nil, nil),
		rows:        prometheus.NewDesc("raven_ovn_rows", "Load balancer rows of this cluster.", nil, nil),
	}
}

type collector struct {
	northbound            *Northbound
	up, connections, rows *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	to <- c.up
	to <- c.connections
	to <- c.rows
	c.northbound.stats.seconds.Describe(to)
	c.northbound.stats.operations.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.northbound.Status()
	up := 0.0
	if s.Connected {
		up = 1
	}
	to <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up)
	to <- prometheus.MustNewConstMetric(c.connections, prometheus.CounterValue, float64(s.Connections))
	to <- prometheus.MustNewConstMetric(c.rows, prometheus.GaugeValue, float64(s.Rows))
	c.northbound.stats.seconds.Collect(to)
	c.northbound.stats.operations.Collect(to)
}
