// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/kuryr/raven/test/sim/openstack"
)

// TestUpdates: an update shows at once and bumps the revision; one that changes nothing does not.
func TestUpdates(t *testing.T) {
	tests := []struct{ name, key, path, attr, body string }{
		{"network", "network", "/networks/$n", "name", "m"},
		{"network description", "network", "/networks/$n", "description", "d"},
		{"subnet", "subnet", "/subnets/$s", "name", "m"},
		{"pool", "subnetpool", "/subnetpools/$q", "name", "m"},
		{"router", "router", "/routers/$r", "description", "d"},
		{"port", "port", "/ports/$p", "device_owner", "compute:kuryr"},
		{"floating ip", "floatingip", "/floatingips/$fip", "description", "d"},
		{"group", "security_group", "/security-groups/$g", "description", "d"},
	}
	h, ids := fixture(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h.t = t
			at := ids.Replace(tt.path)
			revision := func() any { return h.do(200, "GET", at, nil)[tt.key].(attrs)["revision_number"] }
			first := revision()
			h.do(200, "PUT", at, attrs{tt.key: attrs{tt.attr: tt.body}})
			second := revision()
			if got := h.do(200, "GET", at, nil)[tt.key].(attrs)[tt.attr]; got != tt.body || second == first {
				t.Errorf("%s is %v at revision %v, was %v", tt.attr, got, second, first)
			}
			h.do(200, "PUT", at, attrs{tt.key: attrs{tt.attr: tt.body}})
			if third := revision(); third != second {
				t.Errorf("an update that changes nothing brought the revision from %v to %v", second, third)
			}
		})
	}
}

func TestSubnetUpdate(t *testing.T) {
	h, ids := fixture(t)
	s := h.make("subnets", attrs{"network_id": ids.Replace("$other"), "ip_version": 4, "cidr": "10.5.0.0/24"})
	put := func(status int, in attrs) attrs {
		t.Helper()
		doc, _ := h.do(status, "PUT", "/subnets/"+s, attrs{"subnet": in})["subnet"].(attrs)
		return doc
	}
	put(200,
		attrs{
			"allocation_pools": []attrs{{"start": "10.5.0.10", "end": "10.5.0.11"}}, "dns_nameservers": []string{"10.5.0.2"},
		})
	p := h.make("ports", attrs{"network_id": ids.Replace("$other")})
	h.make("ports", attrs{"network_id": ids.Replace("$other")})
	h.do(409, "POST", "/ports", attrs{"port": attrs{"network_id": ids.Replace("$other")}})
	got := h.do(200, "GET", "/ports/"+p, nil)["port"].(attrs)["fixed_ips"].([]any)[0].(attrs)["ip_address"]
	if got != "10.5.0.10" {
		t.Errorf("with a new pool a port got %v", got)
	}
	put(409, attrs{"gateway_ip": "10.5.0.10"})
	if doc := put(200, attrs{"gateway_ip": nil}); doc["gateway_ip"] != nil {
		t.Errorf("without a gateway the subnet is %v", doc)
	}
	h.do(200, "PUT", "/floatingips/"+ids.Replace("$fip"), attrs{"floatingip": attrs{"port_id": nil}})
	f, _ := h.do(200, "PUT", "/floatingips/"+ids.Replace("$fip"),
		attrs{"floatingip": attrs{"port_id": ids.Replace("$p")}})["floatingip"].(attrs)
	if f["status"] != "DOWN" || f["fixed_ip_address"] != "10.0.0.9" || f["router_id"] != ids.Replace("$r") {
		t.Errorf("a floating IP that is just associated is %v", f)
	}
	if f, _ = h.do(200, "GET", "/floatingips/"+ids.Replace("$fip"), nil)["floatingip"].(attrs); f["status"] != "ACTIVE" {
		t.Errorf("an associated floating IP is %v", f)
	}
	h.do(404, "PUT", "/floatingips/"+ids.Replace("$fip"), attrs{"floatingip": attrs{"port_id": p}}) // no router reaches it
}

func TestKeystoneByHand(t *testing.T) {
	w := dial(t, openstack.Options{})
	get := func(status int, url string) attrs {
		t.Helper()
		got, _, doc, err := w.send(t.Context(), http.MethodGet, url, nil)
		if got != status || err != nil {
			t.Errorf("GET %s gave %d, %v; want %d", url, got, err, status)
		}
		return doc
	}
	base := w.c.BaseURL()
	get(300, base+"/")
	if v, _ := get(200, base+"/v3")["version"].(attrs); v["status"] != "stable" {
		t.Errorf("/v3 says %v", v)
	}
	get(200, base+"/networking/")
	get(200, base+"/v2.0")
	get(200, base+"/v2.0/networks") // without the prefix too
	get(404, base+"/v3/unicorns")
	if c, _ := get(200, base+"/v3/auth/catalog")["catalog"].([]any); len(c) != 3 {
		t.Errorf("the catalogue is %v", c)
	}
	w.token = "none"
	if e, _ := get(401, base+"/v3/auth/catalog")["error"].(attrs); e["code"] != 401.0 || e["title"] != "Unauthorized" {
		t.Errorf("the error is %v", e)
	}
	if err := w.c.SetPassword(openstack.UserKuryr, "new"); err != nil {
		t.Fatal(err)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	c := openstack.New(openstack.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	base, err := c.Start(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(ctx, ""); err == nil {
		t.Error("it started twice")
	}
	cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	eventually(t, "it is gone", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err != nil
	})
	c.Close()
	c.Close()
}
