// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
	sim "github.com/kuryr/raven/test/sim/openstack"
)

func TestWhetherCreatesTakeTagsIsFoundOut(t *testing.T) {
	unrecognized := stacktest.NeutronBody("HTTPBadRequest", "Unrecognized attribute(s) 'tags'")
	forbidden := stacktest.NeutronBody("PolicyNotAuthorized",
		"((rule:create_port and rule:create_port:binding:host_id)) is disallowed by policy")
	tests := []struct {
		name    string
		refuse  func(port map[string]any) (int, string)
		ignore  bool // tags, silently
		refused int  // requests
		want    []string
	}{
		{"they do", func(map[string]any) (int, string) { return 0, "" }, false, 0, []string{}},
		{"tags are refused", func(port map[string]any) (int, string) {
			if port["tags"] != nil {
				return 400, unrecognized
			}
			return 0, ""
		}, false, 1, []string{"tags"}},
		{"tags are ignored", func(map[string]any) (int, string) { return 0, "" }, true, 0, []string{"tags"}},
		{"tags are refused, and then the host", func(port map[string]any) (int, string) {
			switch {
			case port["tags"] != nil:
				return 400, unrecognized
			case port["binding:host_id"] != nil:
				return 403, forbidden
			}
			return 0, ""
		}, false, 2, []string{"binding:host_id", "tags"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := 0
				f := &refusing{refuse: func(ports []map[string]any) (int, string, []string) {
					status, body := test.refuse(ports[0])
					if status != 0 {
						refused++
					}
					if test.ignore {
						for _, port := range ports {
							delete(port, "tags")
						}
					}
					return status, body, nil
				}}
				var log bytes.Buffer
				c := connect(t, stacktest.TransportConfig(f))
				c.unsupported.log = slog.New(slog.NewTextHandler(&log, nil))
				for _, err := range burst(t.Context(), c, 1, onNode) {
					if err != nil {
						t.Fatal(err)
					}
				}
				for _, err := range burst(t.Context(), c, 30, onNode) {
					if err != nil {
						t.Error(err)
					}
				}
				if refused != test.refused {
					t.Errorf("met %d refusals, want %d", refused, test.refused)
				}
				got := append([]string{}, c.Unsupported(drivers.KindPort)...)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("left out from then on: %s", diff)
				}
				if n := strings.Count(log.String(), "level=WARN"); n != len(test.want) {
					t.Errorf("warned %d times, want %d: %s", n, len(test.want), log.String())
				}
			})
		})
	}
}

func onNode(int) map[string]any { return map[string]any{"network_id": "n", "binding:host_id": "node"} }

func TestPortsOfACloudWithoutTagsInCreates(t *testing.T) {
	_, c := startSim(t, sim.Options{NoPortTags: true})
	ctx := t.Context()
	network, err := c.Create(ctx, drivers.KindNetwork, stacktest.IdentityOf(0), map[string]any{"name": "n"})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 2; i++ {
		port, err := c.Create(
			ctx, drivers.KindPort, stacktest.IdentityOf(i), map[string]any{"network_id": network.ID, "name": fmt.Sprint(i)},
		)
		if err != nil {
			t.Fatal(err)
		}
		if !port.Managed || port.Identity.Key() != stacktest.IdentityOf(i).Key() || len(port.Tags) != 0 {
			t.Errorf("port %d is known as %v, tags %v", i, port.Identity, port.Tags)
		}
		if err := c.AddTags(ctx, drivers.KindPort, port.ID, stacktest.IdentityOf(i).Tags()); err != nil {
			t.Fatal(err)
		}
	}
	found, err := c.ListIdentity(ctx, drivers.KindPort, stacktest.IdentityOf(2))
	if err != nil || len(found) != 1 || len(found[0].Tags) != 4 {
		t.Errorf("found %v, %v", found, err)
	}
}
