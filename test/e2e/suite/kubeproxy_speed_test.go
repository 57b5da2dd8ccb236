// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/test/harness"
)

// TestKubeProxySpeed measures the time from a write to Kubernetes until a client's packets show it, in three ways
// that serve the same Services: Raven with kubeproxy, Raven with lbaas on Octavia's provider ovn, and Kubernetes' own
// kube-proxy in nftables mode on a node: as it comes, which programs changes once a second at most, and without that
// pause. Endpoints, clients' network and calls are the same for all. Services come one after another, with a rest
// before each write, and the contestants take turns. It prints the times; it fails only where nobody answers.
func TestKubeProxySpeed(t *testing.T) {
	needPackets(t)
	if world.cloud.balancing == nil {
		lacks(t, "the cloud has no load balancing service")
	}
	if world.stack == nil {
		lacks(t, "kube-proxy is the harness's own, and RAVEN_E2E_STACK is not set")
	}
	calm := harness.Settings{}.Set("raven", "drift_check_interval", 300).Set("raven", "sweep_interval", 60)
	without := harness.Settings{}.Set("raven", "drivers", "namespace,pod").With(calm)
	r := &race{site: proxying(t, "speed", without), proxy: proxyConf().With(calm)}
	createNamespace(t, "ks-a")
	createNamespace(t, "ks-b")
	webPods(t, "ks-a", "w1", "w2")
	createPod(t, "ks-b", "client")
	createPod(t, "ks-b", "node")
	r.settled(t)
	plug(t, "ks-a", "w1")
	plug(t, "ks-a", "w2")
	client, node := plug(t, "ks-b", "client"), plug(t, "ks-b", "node")
	theirs := newKubeProxy(t, node)
	readiness(t, "ks-a", "w2", false)
	all := []*contestant{
		{name: "raven, kubeproxy", conf: r.proxy, client: client},
		{name: "raven, lbaas (ovn)", conf: servicesConf().With(calm), client: client},
		{
			name: "kube-proxy, nftables", conf: without, client: node,
			begin: func(t *testing.T) { t.Helper(); theirs.begin(t) }, end: theirs.end,
		},
		{name: "the same without pause", conf: without, client: node, begin: func(t *testing.T) {
			t.Helper()
			theirs.begin(t, "--iptables-min-sync-period=1ms") // of nftables too, despite its name
		}, end: theirs.end},
	}
	rounds, each := len(all), 2 // each is in each place once
	if world.full {
		each = 6
	}
	for round := range rounds {
		for i := range all {
			r.turn(t, all[(round+i)%len(all)], each)
		}
	}
	r.report(t, all)
}

// contestant is a way to serve Services.
type contestant struct {
	name        string
	conf        harness.Settings // of the site's Raven meanwhile
	client      *nic
	begin       func(*testing.T) // what serves, where that is not Raven
	end         func()
	made, added []float64 // milliseconds
}

// race is the Services that are measured.
type race struct {
	*site
	proxy harness.Settings // of a Raven with kubeproxy
	count int
}

// turn measures some Services of a contestant.
func (r *race) turn(t *testing.T, c *contestant, services int) {
	t.Helper()
	// without lbaas nobody takes away what the Service kubernetes has in Octavia: kubeproxy does
	if c.begin != nil && r.balances {
		r.start(t, r.proxy)
		r.settled(t)
	}
	r.start(t, c.conf)
	r.settled(t)
	if c.begin != nil {
		c.begin(t)
		defer c.end()
	}
	for range services {
		r.service(t, c)
	}
}

// service makes a Service whose endpoint w1 is ready, and then makes w2 ready.
func (r *race) service(t *testing.T, c *contestant) {
	t.Helper()
	r.count++
	name, vip := fmt.Sprintf("s%d", r.count), r.vip(t)
	made := measured(t, c.client, net.JoinHostPort(vip, "80"), "ks-a/w1", func() {
		createService(t, "ks-a", name, map[string]any{"clusterIP": vip})
	})
	endpoints(t, "ks-a", name, 1)
	r.settled(t)
	added := measured(t, c.client, net.JoinHostPort(vip, "80"), "ks-a/w2", func() { readiness(t, "ks-a", "w2", true) })
	t.Logf("%s: %.0f ms from the Service, %.0f ms from the endpoint", c.name, made, added)
	c.made, c.added = append(c.made, made), append(c.added, added)
	readiness(t, "ks-a", "w2", false)
	deleteService(t, "ks-a", name)
	r.settled(t)
}

// vip is a clusterIP that no other Service of the race has had. It is chosen before the Service is made, so that
// clients can call it already, and from where clusters give addresses away last.
func (r *race) vip(t *testing.T) string {
	t.Helper()
	first, _ := addressOf(t, "default", "kubernetes")
	address, err := netip.ParseAddr(first)
	if err != nil || !address.Is4() {
		t.Fatalf("the clusterIP of the Service kubernetes is %q (%v)", first, err)
	}
	bytes := address.As4()
	bytes[3] += byte(100 + r.count)
	return netip.AddrFrom4(bytes).String()
}

// calmBefore is how long nothing happens before a write: kube-proxy programs changes once a second at most, and what
// it did before is not to be waited for.
const calmBefore = 1500 * time.Millisecond

// measured says how many milliseconds pass from the begin of a write until a client that calls all the time gets the
// first answer of a pod.
func measured(t *testing.T, client *nic, at, pod string, write func()) float64 {
	t.Helper()
	time.Sleep(calmBefore)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, out := client.begin(ctx, t, fmt.Sprintf("first %s %s", at, pod))
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "calling\n" {
		t.Fatalf("the client says %q (%v)", line, err)
	}
	began := time.Now()
	write()
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%s does not answer %s at %s: %q (%v)", pod, client.pod, at, line, err)
	}
	answered, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Unix(0, answered).Sub(began)
	if took < 0 {
		t.Fatalf("%s answered at %s before anything was written", pod, at)
	}
	return float64(took) / float64(time.Millisecond)
}

// report prints the times.
func (r *race) report(t *testing.T, all []*contestant) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b,
		"%d Services each, one after another: milliseconds from the write until the first answer, median (from to); a "+
			"call every %s\n",
		len(all[0].made), dialEvery)
	fmt.Fprintf(&b, "%-22s %24s %24s\n", "", "a Service is made", "an endpoint gets ready")
	for _, c := range all {
		fmt.Fprintf(&b, "%-22s %24s %24s\n", c.name, spread(c.made), spread(c.added))
	}
	t.Log("\n" + b.String())
	if err := os.WriteFile(filepath.Join(world.artifacts, t.Name(), "report.txt"), []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

func spread(ms []float64) string {
	slices.Sort(ms)
	return fmt.Sprintf("%.0f (%.0f to %.0f)", median(ms), ms[0], ms[len(ms)-1])
}

// dialEvery is how exact first is: a call that gets no answer waits for nobody but itself.
const dialEvery = 10 * time.Millisecond

// first calls an address by TCP, every time from a port of its own, until a name answers. It prints the time of that,
// in nanoseconds of the machine's clock.
func first(address, name string) int {
	found := make(chan time.Time, 1)
	ticker := time.NewTicker(dialEvery)
	defer ticker.Stop()
	for begun := false; ; begun = true {
		go func() {
			text, err := dial("tcp", address)
			if at := time.Now(); err == nil && strings.TrimSpace(text) == name {
				select {
				case found <- at:
				default:
				}
			}
		}()
		if !begun {
			fmt.Println("calling")
		}
		select {
		case at := <-found:
			fmt.Println(at.UnixNano())
			return 0
		case <-ticker.C:
		}
	}
}
