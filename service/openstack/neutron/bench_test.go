// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

// BenchmarkCreate creates a thousand ports at once, and prints requests and what of the server's best that is.
func BenchmarkCreate(b *testing.B) {
	const n = 1000
	tests := []struct {
		name    string
		profile *sim.Profile
		timeout time.Duration // scaled with the profile
	}{
		{"none", sim.None(), time.Minute},
		{"flat50ms", sim.Flat(50 * time.Millisecond), time.Minute},
		{"lab20x", sim.LabLike(20, 2), 3 * time.Second},
		{"lab20x-patient", sim.LabLike(20, 2), time.Minute},
	}
	for _, test := range tests {
		b.Run(test.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := sim.New(sim.Options{Profile: test.profile})
				if _, err := s.Start(b.Context(), ""); err != nil {
					b.Fatal(err)
				}
				config := stacktest.SimConfig(s, sim.UserKuryr)
				config.Timeout = test.timeout
				c := connect(b, config)
				network, _ := place(b, c, "10.0.0.0/16")
				before := c.Stats()
				b.StartTimer()
				started := time.Now()
				for _, err := range many(
					b.Context(), c, n, func(int) map[string]any { return map[string]any{"network_id": network.ID} },
				) {
					if err != nil {
						b.Fatal(err)
					}
				}
				took := time.Since(started)
				b.StopTimer()
				all, _ := c.Stats().Total()
				earlier, _ := before.Total()
				b.ReportMetric(float64(all-earlier), "requests")
				b.ReportMetric(n/took.Seconds(), "ports/s")
				if best, size := s.BestThroughput("port"); best > 0 {
					b.ReportMetric(n/took.Seconds()/best, "of-best")
					b.ReportMetric(float64(size), "best-size")
				}
				var sizes []string
				for _, r := range s.Log(0) {
					if r.Kind == "port" && r.Method == "POST" {
						sizes = append(sizes, fmt.Sprint(r.Items))
					}
				}
				b.Logf("batches %s, slots %d", strings.Join(sizes, " "), c.Stats().Slots)
				c.connection.Close()
				s.Close()
				b.StartTimer()
			}
		})
	}
}
