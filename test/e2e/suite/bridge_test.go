// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/kuryr/raven/test/e2e/stack"
)

// bridged is the plugins bridge and host-local: what Raven's plugin is compared with. Hosts route the pods' ranges.
type bridged struct{}

func (bridged) prepare(*testing.T) {}

func (bridged) connect(t *testing.T, nodes []stack.Node) {
	t.Helper()
	for _, node := range nodes {
		conf, err := json.Marshal(thing{
			"cniVersion": "1.1.0", "name": "pods", "plugins": []thing{
				{
					"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": thing{
						"type": "host-local", "dataDir": filepath.Join(filepath.Dir(node.CNIConf), "addresses"),
						"ranges": [][]thing{{{"subnet": node.PodCIDR}}}, "routes": []thing{{"dst": "0.0.0.0/0"}},
					},
				},
				{"type": "portmap", "backend": "nftables", "capabilities": thing{"portMappings": true}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		spaces := []string{world.stack.Network().Control}
		for _, other := range nodes {
			if other.Name != node.Name {
				spaces = append(spaces, other.Namespace)
			}
		}
		for _, space := range spaces {
			if _, err := sh(t.Context(), "ip", "-n", space, "route", "replace", node.PodCIDR, "via", node.Address); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := sh(context.Background(), "ip", "-n", space, "route", "del", node.PodCIDR); err != nil {
					t.Error(err)
				}
			})
		}
		if err := os.WriteFile(filepath.Join(node.CNIConf, "10-bridge.conflist"), conf, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	host, _, err := net.SplitHostPort(world.stack.Network().APIServer[len("https://"):])
	if err != nil {
		t.Fatal(err)
	}
	if err := world.stack.PublishAPIServer(t.Context(), host); err != nil {
		t.Fatal(err)
	}
}
