// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/sim/openstack"
)

type attrs = map[string]any

// hand does requests as the plain member, or as an administrator, and fails the test where they do not go as expected.
type hand struct {
	t *testing.T
	c *openstack.Cloud
}

func (h hand) do(status int, method, path string, body any) attrs {
	h.t.Helper()
	return h.as(openstack.UserKuryr, openstack.ProjectKuryr, status, method, path, body)
}

func (h hand) admin(status int, method, path string, body any) attrs {
	h.t.Helper()
	return h.as(openstack.UserAdmin, openstack.ProjectAdmin, status, method, path, body)
}

func (h hand) as(user, project string, status int, method, path string, body any) attrs {
	h.t.Helper()
	got, doc := h.c.Call(user, project, method, path, body)
	if got != status {
		h.t.Fatalf("%s %s %v as %s: %d %v, want %d", method, path, body, user, got, doc, status)
	}
	return doc
}

// make creates a resource and returns its id.
func (h hand) make(collection string, in attrs) string {
	h.t.Helper()
	key := strings.ReplaceAll(strings.TrimSuffix(collection, "s"), "-", "_")
	doc, _ := h.do(201, "POST", "/"+collection, attrs{key: in})[key].(attrs)
	id, _ := doc["id"].(string)
	return id
}

func (h hand) external() string {
	h.t.Helper()
	for _, n := range h.c.Networks() {
		if n["router:external"] == true {
			return n["id"].(string)
		}
	}
	h.t.Fatal("there is no external network")
	return ""
}

// fixture is a cloud with a network "n", its subnet "s" 10.0.0.0/24, a router "r" with a gateway and the subnet
// attached, a port "p" and a group "g". $n, $s … in paths and bodies are their ids.
func fixture(t *testing.T) (hand, *strings.Replacer) {
	t.Helper()
	h := hand{t, openstack.New(openstack.Options{Seed: 7})}
	t.Cleanup(h.c.Close)
	n := h.make("networks", attrs{"name": "n"})
	s := h.make("subnets", attrs{"network_id": n, "ip_version": 4, "cidr": "10.0.0.0/24", "name": "s"})
	g := h.make("security-groups", attrs{"name": "g"})
	p := h.make("ports",
		attrs{
			"network_id": n, "name": "p", "mac_address": "0a:00:00:00:00:01", "fixed_ips": []attrs{{"ip_address": "10.0.0.9"}},
		})
	ext := h.external()
	r := h.make("routers", attrs{"name": "r", "external_gateway_info": attrs{"network_id": ext}})
	h.do(200, "PUT", "/routers/"+r+"/add_router_interface", attrs{"subnet_id": s})
	f := h.make("floatingips", attrs{"floating_network_id": ext, "port_id": p})
	pool := h.make("subnetpools",
		attrs{
			"name": "pool", "prefixes": []string{"10.8.0.0/16"}, "min_prefixlen": 20, "default_prefixlen": 24,
			"max_prefixlen": 26,
		})
	other := h.make("networks", attrs{"name": "other"})
	return h,
		strings.NewReplacer("$n", n, "$s", s, "$g", g, "$p", p, "$ext", ext, "$r", r, "$fip", f, "$q", pool, "$other", other)
}

// TestRefusals: each body is what a real Neutron refuses so.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		status                   int
		kind, message            string // a part of the message
	}{
		{"bad uuid", "POST", "/ports", `{"port":{"network_id":"x"}}`, 400, "HTTPBadRequest", "'x' is not a valid UUID."},
		{
			"read-only attribute", "POST", "/ports", `{"port":{"network_id":"$n","id":"$n"}}`, 400, "HTTPBadRequest",
			"Attribute 'id' not allowed in POST",
		},
		{
			"update of an immutable one", "PUT", "/ports/$p", `{"port":{"network_id":"$n"}}`, 400, "HTTPBadRequest",
			"Cannot update read-only attribute network_id",
		},
		{"wrong key", "POST", "/ports", `{"prot":{}}`, 400, "HTTPBadRequest", "Unable to find 'port' in request body"},
		{
			"long name", "POST", "/networks", `{"network":{"name":"` + strings.Repeat("x", 256) + `"}}`, 400, "HTTPBadRequest",
			"exceeds maximum length of 255.",
		},
		{
			"another's project", "POST", "/networks", `{"network":{"project_id":"foreign"}}`, 400, "HTTPBadRequest",
			"requires admin privileges",
		},
		{"large MTU", "POST", "/networks", `{"network":{"mtu":9000}}`, 400, "InvalidInput", "maximum is 1442"},
		{
			"external as a member", "POST", "/networks", `{"network":{"router:external":true}}`, 403, "PolicyNotAuthorized",
			"disallowed by policy",
		},

		{
			"no cidr", "POST", "/subnets", `{"subnet":{"network_id":"$n","ip_version":4}}`, 400, "BadRequest",
			"a subnetpool must be specified in the absence of a cidr",
		},
		{
			"host bits", "POST", "/subnets", `{"subnet":{"network_id":"$n","ip_version":4,"cidr":"10.1.0.1/24"}}`, 400,
			"HTTPBadRequest", "'10.1.0.0/24' is recommended",
		},
		{
			"other version", "POST", "/subnets", `{"subnet":{"network_id":"$n","ip_version":6,"cidr":"10.1.0.0/24"}}`, 400,
			"InvalidInput", "ip_version",
		},
		{
			"overlap", "POST", "/subnets", `{"subnet":{"network_id":"$n","ip_version":4,"cidr":"10.0.0.0/25"}}`, 400,
			"InvalidInput", "overlaps with another subnet",
		},
		{
			"gateway outside", "POST", "/subnets",
			`{"subnet":{"network_id":"$n","ip_version":4,"cidr":"10.1.0.0/24","gateway_ip":"10.2.0.1"}}`, 400, "InvalidInput",
			"Gateway is not valid on subnet",
		},
		{
			"gateway in a pool", "POST", "/subnets",
			`{"subnet":{"network_id":"$n","ip_version":4,"cidr":"10.1.0.0/24","allocation_pools":[{"start":"10.1.0.1","end":"10.1.0.9"}]}}`, 409, "GatewayConflictWithAllocationPools", "10.1.0.1",
		},
		{
			"pool outside", "POST", "/subnets",
			`{"subnet":{"network_id":"$n","ip_version":4,"cidr":"10.1.0.0/24","allocation_pools":[{"start":"10.1.0.9","end":"10.1.1.9"}]}}`, 400, "OutOfBoundsAllocationPool", "spans beyond",
		},
		{
			"pools overlap", "POST", "/subnets",
			`{"subnet":{"network_id":"$n","ip_version":4,"cidr":"10.1.0.0/24","allocation_pools":[{"start":"10.1.0.9","end":"10.1.0.20"},{"start":"10.1.0.20","end":"10.1.0.30"}]}}`, 409, "OverlappingAllocationPools", "Found overlapping",
		},
		{
			"slaac not /64", "POST", "/subnets",
			`{"subnet":{"network_id":"$n","ip_version":6,"cidr":"fd00::/80","ipv6_address_mode":"slaac"}}`, 400,
			"InvalidInput", "/64",
		},
		{
			"gateway in use", "PUT", "/subnets/$s", `{"subnet":{"gateway_ip":"10.0.0.2"}}`, 409, "GatewayIpInUse",
			"already in use by port",
		},

		{
			"pool prefix too long", "POST", "/subnets",
			`{"subnet":{"network_id":"$other","ip_version":4,"subnetpool_id":"$q","prefixlen":27}}`, 400,
			"MaxPrefixSubnetAllocationError", "maximum allowed prefix is 26.",
		},
		{
			"not in the pool", "POST", "/subnets",
			`{"subnet":{"network_id":"$other","ip_version":4,"subnetpool_id":"$q","cidr":"10.9.0.0/24"}}`, 500,
			"SubnetAllocationError", "Cannot allocate requested subnet",
		},
		{
			"pool affinity", "POST", "/subnets", `{"subnet":{"network_id":"$n","ip_version":4,"subnetpool_id":"$q"}}`, 400,
			"NetworkSubnetPoolAffinityError", "same subnet pool",
		},
		{
			"mixed prefixes", "POST", "/subnetpools", `{"subnetpool":{"prefixes":["10.0.0.0/8","fd00::/48"]}}`, 400,
			"PrefixVersionMismatch", "Cannot mix",
		},
		{
			"prefix removed", "PUT", "/subnetpools/$q", `{"subnetpool":{"prefixes":["10.8.0.0/17"]}}`, 400,
			"IllegalSubnetPoolPrefixUpdate", "must be a subset",
		},
		{
			"bounds", "POST", "/subnetpools",
			`{"subnetpool":{"prefixes":["10.0.0.0/8"],"min_prefixlen":24,"max_prefixlen":20}}`, 400,
			"IllegalSubnetPoolPrefixBounds", "Illegal prefix bounds",
		},

		{
			"address in use", "POST", "/ports", `{"port":{"network_id":"$n","fixed_ips":[{"ip_address":"10.0.0.9"}]}}`, 409,
			"IpAddressAlreadyAllocated", "IP address 10.0.0.9 already allocated in subnet $s",
		},
		{
			"MAC in use", "POST", "/ports", `{"port":{"network_id":"$n","mac_address":"0a:00:00:00:00:01"}}`, 409,
			"MacAddressInUse", "The mac address 0a:00:00:00:00:01 is in use.",
		},
		{
			"broadcast address", "POST", "/ports",
			`{"port":{"network_id":"$n","fixed_ips":[{"subnet_id":"$s","ip_address":"10.0.0.255"}]}}`, 400,
			"InvalidIpForSubnet", "not a valid IP for the specified subnet",
		},
		{
			"subnet of another network", "POST", "/ports", `{"port":{"network_id":"$other","fixed_ips":[{"subnet_id":"$s"}]}}`,
			400, "InvalidInput", "fixed_ips included invalid subnet",
		},
		{
			"device of the cloud's", "POST", "/ports",
			`{"port":{"network_id":"$n","device_owner":"network:router_interface"}}`, 403, "PolicyNotAuthorized", "device_owner",
		},
		{
			"MAC changed by a member", "PUT", "/ports/$p", `{"port":{"mac_address":"0a:00:00:00:00:02"}}`, 403,
			"PolicyNotAuthorized", "mac_address",
		},
		{
			"unknown group", "PUT", "/ports/$p", `{"port":{"security_groups":["$n"]}}`, 404, "SecurityGroupNotFound",
			"does not exist",
		},
		{
			"groups without security", "PUT", "/ports/$p", `{"port":{"port_security_enabled":false}}`, 400,
			"PortSecurityAndIPRequiredForSecurityGroups", "must be enabled",
		},
		{
			"port on the external network", "POST", "/ports", `{"port":{"network_id":"$ext"}}`, 403, "PolicyNotAuthorized",
			"create_port",
		},

		{
			"router twice on a subnet", "PUT", "/routers/$r/add_router_interface", `{"subnet_id":"$s"}`, 400, "BadRequest",
			"Router already has a port on subnet",
		},
		{
			"router with nothing", "PUT", "/routers/$r/add_router_interface", `{}`, 400, "BadRequest",
			"Either subnet_id or port_id",
		},
		{"router in use", "DELETE", "/routers/$r", ``, 409, "RouterInUse", "still has ports"},
		{
			"interface needed by a floating IP", "PUT", "/routers/$r/remove_router_interface", `{"subnet_id":"$s"}`, 409,
			"RouterInterfaceInUseByFloatingIP", "required by one or more floating IPs",
		},
		{
			"gateway needed by a floating IP", "PUT", "/routers/$r", `{"router":{"external_gateway_info":null}}`, 409,
			"RouterExternalGatewayInUseByFloatingIp", "floating IPs",
		},
		{
			"snat as a member", "PUT", "/routers/$r",
			`{"router":{"external_gateway_info":{"network_id":"$ext","enable_snat":false}}}`, 403, "PolicyNotAuthorized",
			"enable_snat",
		},
		{
			"gateway not external", "POST", "/routers", `{"router":{"external_gateway_info":{"network_id":"$n"}}}`, 400,
			"BadRequest", "is not an external network",
		},
		{
			"route to nowhere", "PUT", "/routers/$r/add_extraroutes",
			`{"router":{"routes":[{"destination":"10.9.0.0/16","nexthop":"10.77.0.1"}]}}`, 400, "InvalidRoutes",
			"not connected with router",
		},

		{
			"floating IP of a plain network", "POST", "/floatingips", `{"floatingip":{"floating_network_id":"$n"}}`, 400,
			"BadRequest", "not a valid external network",
		},
		{
			"chosen floating address", "POST", "/floatingips",
			`{"floatingip":{"floating_network_id":"$ext","floating_ip_address":"172.24.4.200"}}`, 403, "PolicyNotAuthorized",
			"floating_ip_address",
		},
		{
			"second floating IP", "POST", "/floatingips", `{"floatingip":{"floating_network_id":"$ext","port_id":"$p"}}`, 409,
			"FloatingIPPortAlreadyAssociated", "already has a floating IP",
		},

		{
			"default group", "POST", "/security-groups", `{"security_group":{"name":"default"}}`, 409,
			"SecurityGroupDefaultAlreadyExists", "already exists",
		},
		{
			"ports without protocol", "POST", "/security-group-rules",
			`{"security_group_rule":{"security_group_id":"$g","direction":"ingress","port_range_min":1,"port_range_max":2}}`,
			400, "SecurityGroupProtocolRequiredWithPorts", "Must also specify protocol",
		},
		{
			"range upside down", "POST", "/security-group-rules",
			`{"security_group_rule":{"security_group_id":"$g","direction":"ingress","protocol":"tcp","port_range_min":3,"port_range_max":2}}`, 400, "SecurityGroupInvalidPortRange", "port_range_min must be <=",
		},
		{
			"unknown protocol", "POST", "/security-group-rules",
			`{"security_group_rule":{"security_group_id":"$g","direction":"ingress","protocol":"quic"}}`, 400,
			"SecurityGroupRuleInvalidProtocol", "quic not supported",
		},
		{
			"two remotes", "POST", "/security-group-rules",
			`{"security_group_rule":{"security_group_id":"$g","direction":"ingress","remote_group_id":"$g","remote_ip_prefix":"10.0.0.0/8"}}`, 400, "SecurityGroupMultipleRemoteEntites", "Only one of",
		},
		{
			"same as what a group is born with", "POST", "/security-group-rules",
			`{"security_group_rule":{"security_group_id":"$g","direction":"egress","ethertype":"IPv6"}}`, 409,
			"SecurityGroupRuleExists", "already exists",
		},
		{"quota as a member", "PUT", "/quotas/mine", `{"quota":{"port":1}}`, 403, "PolicyNotAuthorized", "rule:update_quota"},
		{"unknown extension", "GET", "/extensions/bogus", ``, 404, "HTTPNotFound", "bogus"},
		{"unknown collection", "GET", "/unicorns", ``, 404, "HTTPNotFound", "could not be found"},
		{
			"comma in a filter's name", "GET", "/ports?a,b=1", ``, 400, "HTTPBadRequest",
			"['a,b'] is invalid attribute for filtering",
		},
		{
			"sort by nothing", "GET", "/ports?sort_key=bogus&sort_dir=asc", ``, 400, "HTTPBadRequest",
			"invalid attribute for sort_keys",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, ids := fixture(t)
			h.t = t
			before := h.c.Dump(openstack.DumpOptions{Identity: true, Addresses: true, MACs: true, Everything: true})
			path := strings.ReplaceAll(tt.path, "mine", h.c.ProjectID(openstack.ProjectKuryr))
			var body any
			if tt.body != "" {
				body = json.RawMessage(ids.Replace(tt.body))
			}
			doc := h.do(tt.status, tt.method, ids.Replace(path), body)
			e, _ := doc["NeutronError"].(attrs)
			message, _ := e["message"].(string)
			if e["type"] != tt.kind || !strings.Contains(message, ids.Replace(tt.message)) {
				t.Errorf("got %v, want %s with %q", doc, tt.kind, ids.Replace(tt.message))
			}
			if after := h.c.Dump(openstack.DumpOptions{
				Identity: true, Addresses: true, MACs: true, Everything: true,
			}); after != before {
				t.Errorf("a refused request changed the state from\n%s\nto\n%s", before, after)
			}
		})
	}
}
