// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/http"
	"strings"

	"github.com/kuryr/raven/test/contract/rest"
)

func vips(a *api) {
	first := a.balancer(attrs{"vip_address": "10.70.0.55"})
	a.refused(http.StatusInternalServerError, "10.70.0.55", http.MethodPost, "/loadbalancers", attrs{"loadbalancer": attrs{
		"vip_subnet_id": a.subnet, "vip_address": "10.70.0.55", "provider": a.target.Provider.Name,
	}})
	if got := a.list("/loadbalancers?vip_address=10.70.0.55"); len(got) != 1 ||
		rest.Text(got[0], "id") != rest.Text(first, "id") {
		a.t.Errorf("with the address in use there are %v", got)
	}
	outside := a.do(http.MethodPost, "/loadbalancers", attrs{"loadbalancer": attrs{
		"vip_subnet_id": a.subnet, "vip_address": "10.69.0.55", "provider": a.target.Provider.Name,
	}})
	if outside.Status < http.StatusBadRequest {
		a.t.Errorf("with an address outside of its subnet: %s", outside)
	}
	a.t.Logf("an address outside of its subnet: %s", outside)
	byNetwork := a.balancer(attrs{"vip_network_id": a.net})
	if rest.Text(byNetwork, "vip_subnet_id") != a.subnet {
		a.t.Errorf("by its network a load balancer has subnet %q, want %s", rest.Text(byNetwork, "vip_subnet_id"), a.subnet)
	}
	own := a.neutron("ports", attrs{"network_id": a.net, "name": a.prefix})
	if !a.target.Provider.ForeignVIP {
		a.refused(http.StatusInternalServerError, "", http.MethodPost, "/loadbalancers", attrs{"loadbalancer": attrs{
			"vip_port_id": own, "provider": a.target.Provider.Name,
		}})
		return
	}
	lb := a.create(attrs{"vip_port_id": own})
	a.waitFor(rest.Text(lb, "id"), "ACTIVE")
	if rest.Text(lb, "vip_address") != rest.Text(rest.Docs(a.port(own)["fixed_ips"])[0], "ip_address") ||
		rest.Text(lb, "vip_port_id") != own {
		a.t.Errorf("on the port %v the load balancer is %v", a.port(own), lb)
	}
	a.remove(rest.Text(lb, "id"))
	if a.port(own) == nil {
		a.t.Error("a given VIP port is gone with the load balancer")
	}
}

func additionalVIPs(a *api) {
	second := a.neutron("subnets",
		attrs{"network_id": a.net, "ip_version": 4, "cidr": "10.71.0.0/24", "enable_dhcp": false})
	lb := a.balancer(attrs{
		"vip_address": "10.70.0.56", "additional_vips": []attrs{{"subnet_id": second, "ip_address": "10.71.0.56"}},
	})
	got := rest.Docs(lb["additional_vips"])
	addresses := rest.Docs(a.port(rest.Text(lb, "vip_port_id"))["fixed_ips"])
	switch {
	case a.target.Provider.AdditionalVIPs &&
		(len(got) != 1 || rest.Text(got[0], "ip_address") != "10.71.0.56" || len(addresses) != 2):
		a.t.Errorf("additional VIPs are %v, the port has %v", got, addresses)
	case !a.target.Provider.AdditionalVIPs && (len(got) != 1 || len(addresses) != 1):
		a.t.Errorf("known difference is no more: %s made the additional VIPs %v, the port has %v", a.target.Provider.Name,
			got, addresses)
	}
	if len(addresses) == 1 {
		a.t.Logf("known: %s answers 201, shows additional_vips, and makes nothing of them", a.target.Provider.Name)
	}
	a.remove(rest.Text(lb, "id"))
	a.refused(http.StatusBadRequest, "Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet.",
		http.MethodPost, "/loadbalancers",
		attrs{
			"loadbalancer": attrs{
				"vip_subnet_id": a.subnet, "provider": a.target.Provider.Name, "additional_vips": []attrs{{"subnet_id": a.subnet}},
			},
		})
}

// features: what the provider takes, and what is 501.
func features(a *api) {
	p := a.target.Provider
	id := rest.Text(a.balancer(attrs{}), "id")
	try := func(status int, what, path, key string, in attrs) {
		a.t.Helper()
		if s := a.waitFor(id, "ACTIVE"); s != "ACTIVE" {
			a.t.Fatalf("before %s the load balancer is %s", what, s)
		}
		r := a.do(http.MethodPost, path, attrs{key: in})
		if r.Status != status ||
			(status == http.StatusNotImplemented &&
				!strings.HasPrefix(fault(r), "Provider '"+p.Name+"' does not support a requested option: ")) {
			a.t.Errorf("%s: %s, want %d", what, r, status)
		}
		doc, _ := r.Body[key].(attrs)
		if r.Status == http.StatusCreated {
			if s := a.settled(path+"/"+rest.Text(doc, "id"), key); s != "ACTIVE" {
				a.t.Errorf("%s: it became %s", what, s)
			}
		} else if s := a.waitFor(id, "ACTIVE"); s != "ACTIVE" { // a refused request leaves no lock
			a.t.Errorf("after %s was refused the load balancer is %s", what, s)
		}
	}
	webOnly := http.StatusNotImplemented
	if p.Web {
		webOnly = http.StatusCreated
	}
	listener := func(status int, what string, in attrs) {
		a.t.Helper()
		in["loadbalancer_id"] = id
		try(status, what, "/listeners", "listener", in)
	}
	listener(http.StatusCreated, "TCP on port 80", attrs{"protocol": "TCP", "protocol_port": 80})
	listener(http.StatusCreated, "UDP on port 80 too", attrs{"protocol": "UDP", "protocol_port": 80})
	listener(http.StatusCreated, "SCTP on port 80 too", attrs{"protocol": "SCTP", "protocol_port": 80})
	listener(webOnly, "HTTP", attrs{"protocol": "HTTP", "protocol_port": 81})
	listener(webOnly, "allowed_cidrs",
		attrs{"protocol": "TCP", "protocol_port": 82, "allowed_cidrs": []string{"10.0.0.0/8"}})
	listener(http.StatusCreated, "timeouts and a connection limit", attrs{
		"protocol": "TCP", "protocol_port": 83, "timeout_client_data": 1000, "timeout_member_data": 2000,
		"timeout_member_connect": 3000, "connection_limit": 10,
	})
	pool := func(status int, what, protocol, algorithm string, more attrs) {
		a.t.Helper()
		in := attrs{"loadbalancer_id": id, "protocol": protocol, "lb_algorithm": algorithm, "name": what}
		for k, v := range more {
			in[k] = v
		}
		try(status, what, "/pools", "pool", in)
	}
	pool(http.StatusNotImplemented, "algorithm "+p.Wrong, "TCP", p.Wrong, nil)
	for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
		pool(http.StatusCreated, protocol+" with persistence", protocol, p.Algorithm,
			attrs{"session_persistence": attrs{"type": "SOURCE_IP"}})
	}
	at := rest.Text(a.list("/pools?name=TCP%20with%20persistence&loadbalancer_id=" + id)[0], "id")
	udp := rest.Text(a.list("/pools?name=UDP%20with%20persistence&loadbalancer_id=" + id)[0], "id")
	try(webOnly, "an HTTP monitor", "/healthmonitors", "healthmonitor",
		attrs{"pool_id": at, "type": "HTTP", "delay": 5, "timeout": 3, "max_retries": 2})
	try(http.StatusCreated, "a UDP monitor", "/healthmonitors", "healthmonitor",
		attrs{"pool_id": udp, "type": "UDP-CONNECT", "delay": 5, "timeout": 3, "max_retries": 2})
	member := a.members(105, 1)[0]
	member["monitor_port"] = 8081
	try(webOnly, "a monitor port", "/pools/"+at+"/members", "member", member)
	backup := a.members(106, 1)[0]
	backup["backup"] = true
	try(http.StatusCreated, "a backup member", "/pools/"+at+"/members", "member", backup)
	elsewhere := http.StatusCreated
	if !p.Web {
		elsewhere = http.StatusNotImplemented
	}
	try(elsewhere, "a member without subnet outside the VIP's", "/pools/"+at+"/members", "member",
		attrs{"address": "10.99.0.1", "protocol_port": 80})
	if p.Probes {
		return
	}
	a.waitFor(id, "ACTIVE")
	r := a.must(http.StatusCreated, http.MethodPost, "/healthmonitors",
		attrs{"healthmonitor": attrs{"pool_id": at, "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 2}})
	doc, _ := r.Body["healthmonitor"].(attrs)
	if s := a.settled("/healthmonitors/"+rest.Text(doc, "id"), "healthmonitor"); s != "ERROR" {
		a.t.Errorf("known difference is no more: %s made a health monitor for a member that is no port: it is %s", p.Name, s)
	}
	a.t.Logf("known: %s puts the health monitor of a member that is no port in ERROR; the load balancer stays ACTIVE",
		p.Name)
}
