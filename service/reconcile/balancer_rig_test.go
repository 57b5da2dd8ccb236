// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/drivers"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// served is what a test wants of a load balancer.
type served struct {
	provider string
	ports    []int64
	members  int
	first    int // the last digit of the first member's address
	monitor  bool
	udp      bool
	address  string
	floating string
	extra    func(*drivers.LoadBalancer)
}

func (s served) set() drivers.Set {
	lb := drivers.LoadBalancer{
		Name: new("shop"), VIPSubnetID: drivers.From("subnet"), Listeners: []drivers.Listener{}, Pools: []drivers.Pool{},
	}
	if s.provider != "" {
		lb.Provider = &s.provider
	}
	if s.address != "" {
		lb.VIPAddress = &s.address
	}
	algorithm := "ROUND_ROBIN"
	if s.provider == "ovn" {
		algorithm = "SOURCE_IP_PORT"
	}
	for _, port := range s.ports {
		protocol := "TCP"
		if s.udp && port != s.ports[0] {
			protocol = "SCTP"
		}
		name := fmt.Sprintf("shop:%s:%d", protocol, port)
		lb.Listeners = append(lb.Listeners,
			drivers.Listener{Name: name, Protocol: new(protocol), ProtocolPort: new(port), DefaultPool: name})
		pool := drivers.Pool{
			Name: name, Protocol: new(protocol), LBAlgorithm: new(algorithm), Members: []drivers.Member{},
			SessionPersistence: &drivers.SessionPersistence{}, HealthMonitor: &drivers.HealthMonitor{},
		}
		if s.monitor {
			pool.HealthMonitor = &drivers.HealthMonitor{
				Type: "TCP", Delay: new(int64(5)), Timeout: new(int64(3)), MaxRetries: new(int64(2)),
			}
		}
		for i := range s.members {
			pool.Members = append(pool.Members, drivers.Member{
				Name: fmt.Sprintf("pod-%d", s.first+i), Address: fmt.Sprintf("10.7.%d.%d", (s.first+i)/250, (s.first+i)%250+2),
				ProtocolPort: new(port), SubnetID: drivers.From("subnet"), Weight: new(int64(1)),
			})
		}
		lb.Pools = append(lb.Pools, pool)
	}
	if s.extra != nil {
		s.extra(&lb)
	}
	set := setOf(network("home"), subnet("home", "10.7.0.0/16"), drivers.Resource{Name: "lb", Spec: lb})
	set.Outputs = []drivers.Output{{Kind: drivers.Annotation, Key: "a/a", Text: drivers.From("lb", "vip_address")}}
	if s.floating != "" {
		way := router("way")
		way.Spec = drivers.Router{
			Name: new("way"), ExternalGateway: &drivers.ExternalGateway{NetworkID: drivers.From("public")},
		}
		floating := drivers.FloatingIPName("4")
		set.Resources = append(set.Resources, way, attachment(),
			drivers.Resource{Name: "public", Spec: drivers.Lookup{Of: drivers.KindNetwork, ID: "public"}},
			drivers.Resource{Name: floating, After: []drivers.Ref{{Name: "attachment"}}, Spec: drivers.FloatingIP{
				FloatingNetworkID: drivers.From("public"), PortID: drivers.From("lb", "vip_port_id"),
				FloatingIPAddress: floatingAddress(s.floating),
			}})
	}
	return set
}

func floatingAddress(text string) *string {
	if text == "any" {
		return nil
	}
	return &text
}

func shopOf(members int) served { return served{ports: []int64{80, 443}, members: members} }

// lbWrites lists the changes that were asked of the load balancing service.
func (w *world) lbWrites() []string {
	var list []string
	for _, r := range w.cloud.Log(0) {
		if strings.HasPrefix(r.Path, "/v2.0/lbaas") && r.Method != http.MethodGet {
			list = append(list, fmt.Sprintf("%s %s %d", r.Method, r.Kind, r.Status))
		}
	}
	return list
}

func (w *world) wantWrites(want ...string) {
	w.t.Helper()
	if got := w.lbWrites(); !slices.Equal(got, want) {
		w.t.Errorf("the changes asked for are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func quick(c *config) { c.PollInterval = 5 * time.Millisecond }

// amphora is a provider that takes a while.
func amphora() simcloud.Provider {
	return simcloud.Amphora(simcloud.Work{
		Create: 20 * time.Millisecond, Update: 20 * time.Millisecond, Delete: 20 * time.Millisecond,
	})
}

func ovnProvider() simcloud.Provider {
	return simcloud.OVN(simcloud.Work{
		Create: 10 * time.Millisecond, Update: 10 * time.Millisecond, Delete: 10 * time.Millisecond,
		Listener: 5 * time.Millisecond,
		Pool:     5 * time.Millisecond, Member: 5 * time.Millisecond, Monitor: 5 * time.Millisecond,
	})
}

func balancers(t *testing.T, providers ...simcloud.Provider) *world {
	t.Helper()
	return newWorld(t, simkube.Options{}, simcloud.Options{Providers: providers})
}

func (w *world) members(pool string) (addresses []string) {
	for _, p := range w.named("pool", pool) {
		for _, m := range w.cloud.Objects("member") {
			if m["pool_id"] == p["id"] {
				addresses = append(addresses, text(m, "address"))
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}

// touchMap wakes the owner of a ConfigMap.
func (w *world) touchMap(name string, n int) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"data":{"k":"%d"}}`, n)
	if _, err := w.kube.Patch(configMaps(), "default", name, types.MergePatchType, patch); err != nil {
		w.t.Fatal(err)
	}
}

// polls are the times of the polls of busy load balancers: each begins with a list of all of them.
func (w *world) polls() (at []time.Time) {
	for _, r := range w.cloud.Log(0) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.Path, "/lbaas/loadbalancers") &&
			strings.Contains(r.Query, "tags=") {
			at = append(at, r.At)
		}
	}
	return at
}
