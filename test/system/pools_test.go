// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestCampaignKillsWithPools has pods come in waves and go, and kills the leader of two at a random moment of each
// wave, with some of Neutron's answers lost. No port is ever announced for two pods, none has one that is not its own,
// and in the end Neutron has the ports of the pods and of the pools.
func TestCampaignKillsWithPools(t *testing.T) {
	harness.Campaign(t)
	t.Parallel()
	const waves, each, least = 12, 20, 10
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := pair(t)
	r.conf.Set("kubernetes", "lease_duration", "3s").Set("kubernetes", "lease_renew_deadline", "2s").
		Set("vif_pool", "vif_pool_driver", "neutron").Set("vif_pool", "ports_pool_min", least).
		Set("vif_pool", "ports_pool_update_frequency", 1)
	r.bare()
	a := announcements{of: map[string]string{}}
	stop, err := r.kube.Follow(pods(), a.see)
	r.check(err)
	defer stop()
	if _, err := r.cloud.AddFault(simcloud.Rule{
		Method: "write", Path: "/ports", Probability: 0.03, Action: simcloud.ActionApplyCut,
	}); err != nil {
		t.Fatal(err)
	}
	leader := r.peer("0")
	must(t, "a leader", leader.leads)
	r.createNamespace("shop")
	for wave := range waves {
		next := r.peer(fmt.Sprint(wave + 1))
		for i := range each {
			r.createPod("shop", fmt.Sprintf("w%d-%d", wave, i))
		}
		if wave > 0 {
			for i := range each {
				r.deletePod("shop", fmt.Sprintf("w%d-%d", wave-1, i))
			}
		}
		time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond) // the moment of the kill, not a wait
		leader.Kill()
		must(t, "another leader", next.leads)
		leader = next
		must(t, fmt.Sprintf("a port for each pod of wave %d", wave), func() string { return r.portless() })
	}
	r.cloud.ClearFaults()
	must(t, "the ports of the pods and of the pool", func() string { return r.poolAmiss(least) })
	a.report(t)
	leader.stop()
}

// announcements are the pods for which a port was announced, by its id.
type announcements struct {
	mu    sync.Mutex
	of    map[string]string
	twice []string
}

func (a *announcements) see(_ apiwatch.EventType, pod map[string]any) {
	meta, _ := pod["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	text, _ := annotations["kuryr.org/neutron-port"].(string)
	var port struct {
		ID       string `json:"id"`
		DeviceID string `json:"device_id"`
	}
	if text == "" || json.Unmarshal([]byte(text), &port) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	uid, _ := meta["uid"].(string)
	if other := a.of[port.ID]; other != "" && other != uid || port.DeviceID != uid {
		a.twice = append(a.twice, fmt.Sprintf("port %s for %v (%s), with device_id %s, and for %s before", port.ID,
			meta["name"], uid, port.DeviceID, other))
	}
	a.of[port.ID] = uid
}

func (a *announcements) report(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Logf("%d ports were announced", len(a.of))
	for _, text := range a.twice {
		t.Error(text)
	}
}

// portless names a pod that has no port yet.
func (r *rig) portless() string {
	list, err := r.kube.List(pods(), "shop")
	r.check(err)
	for _, pod := range list {
		meta, _ := pod["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		if r.portOf("shop", name) == "" {
			return name + " has no port"
		}
	}
	return ""
}

// poolAmiss says what is amiss with the ports for pods: each is a pod's, as tags and device_id say, and announced
// there, or ready, of which each of two namespaces has so many at least.
func (r *rig) poolAmiss(least int) string {
	list, err := r.kube.List(pods(), "shop")
	r.check(err)
	announced := map[string]string{}
	for _, pod := range list {
		meta, _ := pod["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		uid, _ := meta["uid"].(string)
		announced[uid] = r.portOf("shop", name)
	}
	ready := map[any]int{}
	taken := 0
	for _, port := range r.cloud.Ports() {
		uid, _ := port["device_id"].(string)
		tags, _ := port["tags"].([]any)
		switch {
		case port["device_owner"] != "compute:kuryr":
		case port["name"] == "available-port":
			if uid != "" || !slices.ContainsFunc(tags, func(tag any) bool {
				return strings.HasPrefix(fmt.Sprint(tag), "raven:name=ready@")
			}) {
				return fmt.Sprintf("port %v is called ready: %v %v", port["id"], uid, tags)
			}
			ready[port["network_id"]]++
		case announced[uid] != port["id"] || !slices.Contains(tags, any("raven:owner=pod:"+uid)):
			return fmt.Sprintf("port %v of %s, which says %s: %v", port["id"], uid, announced[uid], tags)
		default:
			taken++
		}
	}
	if taken != len(list) || len(ready) != 2 {
		return fmt.Sprintf("%d ports are taken by %d pods, %d networks have ready ones", taken, len(list), len(ready))
	}
	for network, n := range ready {
		if n < least {
			return fmt.Sprintf("network %v has %d ready ports", network, n)
		}
	}
	return ""
}
