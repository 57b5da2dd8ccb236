// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// BenchmarkPage measures the page of the real raven with many pods, in namespaces of 100: how long the topology takes
// to be drawn, to show a change, and to expand a namespace, and what one open page costs the daemon.
func BenchmarkPage(b *testing.B) {
	for _, pods := range []int{1000, 10000} {
		b.Run(strconv.Itoa(pods), func(b *testing.B) {
			p := browse(b)
			w := newWorld(b, simcloud.Options{})
			const each = 100
			for i := range pods / each {
				name := fmt.Sprintf("ns-%03d", i)
				w.namespace(name)
				for j := range each {
					w.pod(name, fmt.Sprintf("pod-%02d", j))
				}
			}
			for i := range pods / each {
				w.settled(fmt.Sprintf("ns-%03d", i), each+1)
			}
			before := w.resident()
			for n := 0; b.Loop(); n++ {
				measure(b, p, w, n)
			}
			b.ReportMetric(float64(before), "KiB-before")
			b.ReportMetric(float64(w.resident()), "KiB-with-page")
		})
	}
}

func measure(b *testing.B, p *page, w *world, n int) {
	b.Helper()
	began := time.Now()
	p.do(chromedp.Navigate(w.url()))
	p.until(`performance.getEntriesByName('raven-topology').length > 0`)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-first-paint")
	name := fmt.Sprintf("late-%d", n)
	w.namespace(name)
	began = time.Now()
	p.untilText(".groups button", name)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-update")
	began = time.Now()
	p.eval(`[...document.querySelectorAll('.groups button')].find(e => e.textContent.includes('ns-000')).click()`, nil)
	p.until(`ravenGraph.nodes(':child').length > 50`)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-expand")
}

// resident is how much memory raven takes, in KiB.
func (w *world) resident() int {
	w.tb.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(w.process.Cmd.Process.Pid), "status"))
	if err != nil {
		w.tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			if err != nil {
				w.tb.Fatal(err)
			}
			return kib
		}
	}
	w.tb.Fatal("no VmRSS")
	return 0
}
