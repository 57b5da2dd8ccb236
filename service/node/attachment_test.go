// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers/contract"
)

// TestAttachment: annotations that keep the contract are read, others are refused with the annotation's name.
func TestAttachment(t *testing.T) {
	t.Parallel()
	good := portOf(1, "uid-1")
	a, err := parseAttachment(good)
	if err != nil {
		t.Fatal(err)
	}
	if a.Port != portID(1) || a.DeviceID != "uid-1" || a.HostID != "host-1" || a.MTU != 1400 ||
		a.MAC.String() != macOf(1) || len(a.Addresses) != 1 || len(a.DNS) != 1 ||
		a.Addresses[0].Prefix.String() != "10.1.0.11/16" {
		t.Errorf("attachment %+v", a)
	}
	for name, test := range map[string]struct{ key, old, replacement, want string }{
		"no port":              {contract.Port, "", "", "Raven writes"},
		"no version":           {contract.VersionKey, "", "", "Raven writes"},
		"no network":           {contract.Network, "", "", "Raven writes"},
		"no subnet":            {contract.Subnet, "", "", "Raven writes"},
		"another version":      {contract.VersionKey, "1", "2", "knows version 1"},
		"no document":          {contract.Port, "{", "x{", "JSON document"},
		"a list":               {contract.Network, `{"id":"n1","name":"net","mtu":1400}`, "[]", "JSON document"},
		"no UUID":              {contract.Port, portID(1), "br-int", "no UUID"},
		"no MAC address":       {contract.Port, macOf(1), "fa:16", "no MAC address"},
		"a long MAC address":   {contract.Port, macOf(1), "00:00:5e:00:53:01:00:00", "no MAC address"},
		"no address":           {contract.Port, "10.1.0.11", "10.1.0", "no address"},
		"an address elsewhere": {contract.Port, "10.1.0.11", "10.2.0.11", "not in cidr"},
		"another subnet":       {contract.Port, `"s4"`, `"s5"`, "do not have"},
		"no range":             {contract.Subnet, "10.1.0.0/16", "10.1.0.0", "cidr"},
		"no gateway":           {contract.Subnet, `"10.1.0.1"`, `"gateway"`, "gateway_ip"},
		"an IPv6 gateway":      {contract.Subnet, `"10.1.0.1"`, `"fd00::1"`, "gateway_ip"},
		"no destination":       {contract.Subnet, "10.7.0.0/16", "ten", "destination"},
		"no next hop":          {contract.Subnet, "10.1.0.2", "ten", "nexthop"},
		"a negative MTU":       {contract.Network, "1400", "-1", "no MTU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := maps.Clone(good)
			if bad[test.key] = strings.Replace(good[test.key], test.old, test.replacement, 1); test.old == "" {
				delete(bad, test.key)
			}
			_, err := parseAttachment(bad)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.key) &&
				!strings.Contains(err.Error(), contract.Port) {
				t.Errorf("error %v, want %q of %s", err, test.want, test.key)
			}
			var missing *missingError
			if errors.As(err, &missing) != (test.old == "") {
				t.Errorf("error %T", err)
			}
		})
	}
}

// TestRanges: what is routed over the node's own interface are ranges, and never everything.
func TestRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                    "",
		`["10.1.2.3/16","fd00::1/48"]`:        "10.1.0.0/16 fd00::/48",
		`["0.0.0.0/0"]`:                       "error",
		`["10.1.0.0/16","::/0"]`:              "error",
		`["10.1.0.0"]`:                        "error",
		`{"10.1.0.0/16":"10.1.0.0/16"}`:       "error",
		`["10.1.0.0/16","10.1.0.0/16\u0000"]`: "error",
	} {
		ranges, err := parseRanges(map[string]string{contract.PodCIDRs: text})
		var got []string
		for _, one := range ranges {
			got = append(got, one.String())
		}
		if err != nil {
			got = []string{"error"}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v (%v)", text, got, err)
		}
	}
}

// TestRoutes: a default route for each family by the first address that has a gateway, unless a subnet has one itself.
func TestRoutes(t *testing.T) {
	t.Parallel()
	annotations := portOf(1, "uid")
	annotations[contract.Subnet] = strings.Replace(annotations[contract.Subnet], "10.7.0.0/16", "0.0.0.0/0", 1)
	a, err := parseAttachment(annotations)
	if err != nil {
		t.Fatal(err)
	}
	if routes := a.routes(); len(routes) != 1 || routes[0].Gateway.String() != "10.1.0.2" {
		t.Errorf("routes %v", routes)
	}
	annotations[contract.Subnet] = strings.Replace(annotations[contract.Subnet], "10.1.0.2", "0.0.0.0", 1)
	if a, err = parseAttachment(annotations); err != nil {
		t.Fatal(err)
	}
	if routes := a.routes(); len(routes) != 1 || routes[0].Gateway.IsValid() {
		t.Errorf("routes on the link %v", routes)
	}
}

// TestMark: what a link is for can be read from its alias, whatever the names are; other aliases are none.
func TestMark(t *testing.T) {
	t.Parallel()
	m := mark{
		Sandbox: strings.Repeat("f", 64), IfName: "eth0", Pod: hash("default/p"), UID: "8f48b953-7af9-4563-864c-6f7fbbb2a897",
	}
	if got, ok := parseMark(m.String()); !ok || got != m || len(m.String()) > 255 {
		t.Errorf("%q is %+v", m, got)
	}
	for netns, kept := range map[string]string{
		"/var/run/netns/cni-8f48b953-7af9-4563-864c-6f7fbbb2a897": "/var/run/netns/cni-8f48b953-7af9-4563-864c-6f7fbbb2a897",
		"/a path":                        "",
		"/" + strings.Repeat("long", 40): "",
	} {
		m.Netns = netns
		got, ok := parseMark(m.String())
		if want := (mark{m.Sandbox, m.IfName, m.Pod, m.UID, kept}); !ok || got != want || len(m.String()) > maxAlias {
			t.Errorf("%q is %+v", m, got)
		}
	}
	for _, alias := range []string{"", "raven", "raven sandbox=x", "uplink to the rack", "ravensandbox=x ifname=y"} {
		if got, ok := parseMark(alias); ok {
			t.Errorf("%q is %+v", alias, got)
		}
	}
	name := hostName(m.Sandbox, m.IfName)
	if len(name) != 15 || !isHostName(name) || name != hostName(m.Sandbox, m.IfName) || name == hostName("other", "eth0") {
		t.Errorf("name %q", name)
	}
	for _, name := range []string{"rvnx", "rvn00112233445", "rvn0011223344zz", "eth0", "tap00112233445"} {
		if isHostName(name) {
			t.Errorf("%q is taken for a link of Raven", name)
		}
	}
}

// FuzzAttachment: no annotation, whoever wrote it, makes the daemon panic, or plug in without MAC address and address.
func FuzzAttachment(f *testing.F) {
	good := portOf(1, "uid")
	f.Add(good[contract.Port], good[contract.Subnet], "["+good[contract.Subnet]+"]", good[contract.Network],
		`["10.0.0.0/8"]`)
	f.Add(`{"fixed_ips":null}`, `null`, `[null]`, `{"mtu":1e400}`, `{}`)
	f.Fuzz(func(t *testing.T, port, subnet, subnets, network, ranges string) {
		annotations := map[string]string{
			contract.VersionKey: "1", contract.Port: port, contract.Subnet: subnet, contract.Subnets: subnets,
			contract.Network: network, contract.PodCIDRs: ranges,
		}
		a, err := parseAttachment(annotations)
		if err != nil {
			return
		}
		if len(a.MAC) != 6 || len(a.Addresses) == 0 || !isUUID(a.Port) {
			t.Errorf("%+v", a)
		}
		to, err := parseRanges(annotations)
		if err == nil {
			a.nodeRoutes(to)
		}
		for _, r := range a.routes() {
			if !r.Destination.IsValid() {
				t.Errorf("route %+v", r)
			}
		}
		result(sandbox{"s", "/n", "eth0"}, a)
	})
}

// TestSetApart: of each IP version one address is for translated connections, and stays that as long as the port has
// it.
func TestSetApart(t *testing.T) {
	for _, c := range []struct{ addresses, told, want, first string }{
		{"10.0.0.5", "", "", "10.0.0.5"},
		{"10.0.0.5", "10.0.0.5", "", "10.0.0.5"},
		{"10.0.0.7,10.0.0.5", "", "10.0.0.7", "10.0.0.5"},
		{"10.0.0.7,10.0.0.5", "10.0.0.5", "10.0.0.5", "10.0.0.7"},
		{"10.0.0.7,10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.5"},
		{"fd00::7,10.0.0.7,fd00::5,10.0.0.5", "fd00::5", "10.0.0.7,fd00::5", "10.0.0.5"},
		{"fd00::7,10.0.0.7,10.0.0.5", "", "10.0.0.7", "10.0.0.5"},
	} {
		a := &attachment{}
		for _, text := range strings.Split(c.addresses, ",") {
			ip := netip.MustParseAddr(text)
			a.Addresses = append(a.Addresses, address{Prefix: netip.PrefixFrom(ip, ip.BitLen()), Gateway: ip})
		}
		if got := join(a.setApart(c.told)); got != c.want {
			t.Errorf("of %s, told %q: %q is set apart, want %q", c.addresses, c.told, got, c.want)
		}
		routes := a.nodeRoutes([]netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")})
		if len(routes) != 1 || routes[0].Source.String() != c.first {
			t.Errorf("of %s, told %q: the routes are %v, want source %s", c.addresses, c.told, routes, c.first)
		}
	}
}
