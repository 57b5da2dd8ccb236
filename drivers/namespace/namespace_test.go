// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/ranges"
)

// values returns the defaults of the options, changed as the case says. Keys are "group/name".
func values(t *testing.T, changes map[string]any) drivers.Values {
	t.Helper()
	v := drivers.Values{conf.SubnetGroup: {}, conf.DefaultsGroup: {}, poolGroup: {}}
	for _, o := range options() {
		if !o.HasDefault {
			continue
		}
		switch o.Type {
		case drivers.IntegerOption:
			i, err := strconv.ParseInt(o.Default, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			v[o.Group][o.Name] = i
		case drivers.BooleanOption:
			v[o.Group][o.Name] = o.Default == "true"
		case drivers.ListOption:
			v[o.Group][o.Name] = strings.FieldsFunc(o.Default, func(r rune) bool { return r == ',' })
		default:
			v[o.Group][o.Name] = o.Default
		}
	}
	for key, value := range changes {
		group, name, _ := strings.Cut(key, "/")
		v[group][name] = value
	}
	return v
}

func configured(t *testing.T, changes map[string]any) drivers.Driver {
	t.Helper()
	d := New()
	if err := d.Configure(t.Context(), values(t, changes)); err != nil {
		t.Fatal(err)
	}
	return d
}

func object(t *testing.T, watch string, o any) drivers.Object {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return drivers.Object{Watch: watch, Raw: raw}
}

func serviceCIDR(t *testing.T, name string, cidrs ...string) drivers.Object {
	t.Helper()
	return object(t, ranges.ServiceCIDRWatch, map[string]any{
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"cidrs": cidrs},
	})
}

func translate(t *testing.T, d drivers.Driver, cidrs ...drivers.Object) (drivers.Set, error) {
	t.Helper()
	needs := drivers.NewNeeds(map[drivers.Need][]drivers.Object{{Watch: ranges.ServiceCIDRWatch}: cidrs})
	web := object(t, namespaces, map[string]any{"metadata": map[string]any{"name": "web"}})
	return d.Translate(t.Context(), web, needs)
}

// An operator who reads the error must find every option and value that is involved, and nothing may be guessed.
func TestConfigureRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes map[string]any
		want    []string
	}{
		{
			"the original's defaults: services inside the pods' pool",
			map[string]any{"namespace_subnet/service_cidr": []string{"192.168.3.0/24"}},
			[]string{
				"[namespace_subnet] service_cidr: 192.168.3.0/24", "[namespace_subnet] cluster_subnet_pool = 192.168.0.0/16",
			},
		},
		{
			"a pool inside the derived service subnet",
			map[string]any{
				"namespace_subnet/service_cidr":        []string{"10.96.0.0/12"},
				"namespace_subnet/cluster_subnet_pool": []string{"10.112.0.0/16"},
			},
			[]string{"[neutron_defaults] service_subnet", "10.96.0.0/11", "10.96.0.0/12", "cluster_subnet_pool = 10.112.0.0/16"},
		},
		{
			"a configured service subnet over the pool, with no service CIDR known yet",
			map[string]any{"neutron_defaults/service_subnet": []string{"192.0.0.0/8"}},
			[]string{"[neutron_defaults] service_subnet: 192.0.0.0/8", "cluster_subnet_pool = 192.168.0.0/16"},
		},
		{
			"IPv6 overlap",
			map[string]any{
				"namespace_subnet/ip_families": "dual", "namespace_subnet/service_cidr": []string{"fd72:6176:656e:1::/108"},
			},
			[]string{"service_cidr: fd72:6176:656e:1::/108", "cluster_subnet_pool_v6 = fd72:6176:656e::/48"},
		},
		{
			"pods in the external network",
			map[string]any{"namespace_subnet/cluster_external_subnet": []string{"192.168.128.0/17"}},
			[]string{"cluster_subnet_pool: 192.168.0.0/16", "cluster_external_subnet = 192.168.128.0/17"},
		},
		{
			"services in the external network",
			map[string]any{
				"namespace_subnet/cluster_external_subnet": []string{"10.0.0.0/8"},
				"namespace_subnet/service_cidr":            []string{"10.96.0.0/12"},
			},
			[]string{"service_cidr: 10.96.0.0/12", "cluster_external_subnet = 10.0.0.0/8"},
		},
		{
			"a second service CIDR over the pool",
			map[string]any{"namespace_subnet/service_cidr": []string{"10.96.0.0/12", "192.168.9.0/24"}},
			[]string{"service_cidr: 192.168.9.0/24", "cluster_subnet_pool = 192.168.0.0/16"},
		},
		{
			"a service subnet that is the service CIDR",
			map[string]any{
				"namespace_subnet/service_cidr":   []string{"10.96.0.0/12"},
				"neutron_defaults/service_subnet": []string{"10.96.0.0/12"},
			},
			[]string{"service_subnet: 10.96.0.0/12 must contain", "service_cidr = 10.96.0.0/12", "Neutron"},
		},
		{
			"a service subnet elsewhere",
			map[string]any{
				"namespace_subnet/service_cidr":   []string{"10.96.0.0/12"},
				"neutron_defaults/service_subnet": []string{"10.0.0.0/12"},
			},
			[]string{"service_subnet: 10.0.0.0/12", "service_cidr = 10.96.0.0/12"},
		},
		{
			"a service subnet without room",
			map[string]any{
				"namespace_subnet/service_cidr":   []string{"10.96.0.0/31"},
				"neutron_defaults/service_subnet": []string{"10.96.0.0/30"},
			},
			[]string{"service_subnet: 10.96.0.0/30", "room", "service_cidr = 10.96.0.0/31"},
		},
		{
			"a derived service subnet with public addresses",
			map[string]any{"namespace_subnet/service_cidr": []string{"10.0.0.0/8"}},
			[]string{"service_cidr = 10.0.0.0/8", "not private", "[neutron_defaults] service_subnet"},
		},
		{
			"two IPv4 service subnets",
			map[string]any{"neutron_defaults/service_subnet": []string{"10.0.0.0/12", "10.16.0.0/12"}},
			[]string{"10.0.0.0/12", "10.16.0.0/12", "service_subnet"},
		},
		{
			"a range and a name",
			map[string]any{
				"namespace_subnet/ip_families":    "dual",
				"neutron_defaults/service_subnet": []string{"10.0.0.0/12", "services-v6"},
			},
			[]string{"service_subnet", "services-v6"},
		},
		{
			"more existing subnets than IP versions",
			map[string]any{"neutron_defaults/service_subnet": []string{"one", "two"}},
			[]string{"service_subnet", "2", "ip_families"},
		},
		{
			"IPv6 service CIDR without IPv6",
			map[string]any{"namespace_subnet/service_cidr": []string{"fd00::/108"}},
			[]string{"service_cidr", "fd00::/108", "ip_families"},
		},
		{
			"pool smaller than a subnet",
			map[string]any{"namespace_subnet/cluster_subnet_pool": []string{"192.168.0.0/25"}},
			[]string{"cluster_subnet_pool", "192.168.0.0/25", "24"},
		},
		{
			"pool of the other version",
			map[string]any{"namespace_subnet/cluster_subnet_pool": []string{"fd00::/16"}},
			[]string{"cluster_subnet_pool", "fd00::/16", "IPv4"},
		},
		{
			"no pool",
			map[string]any{"namespace_subnet/cluster_subnet_pool": []string(nil)},
			[]string{"cluster_subnet_pool"},
		},
		{
			"overlapping pool ranges",
			map[string]any{"namespace_subnet/cluster_subnet_pool": []string{"192.168.0.0/16", "192.168.4.0/22"}},
			[]string{"cluster_subnet_pool", "192.168.0.0/16", "192.168.4.0/22"},
		},
		{
			"bits behind the prefix",
			map[string]any{"namespace_subnet/cluster_subnet_pool": []string{"192.168.1.0/16"}},
			[]string{"cluster_subnet_pool", "192.168.1.0/16", "192.168.0.0/16"},
		},
		{
			"a DNS server by name",
			map[string]any{"namespace_subnet/dns_nameservers": []string{"dns.example"}},
			[]string{"dns_nameservers", "dns.example"},
		},
		{
			"an MTU below what IPv6 needs",
			map[string]any{"namespace_subnet/ip_families": "ipv6", "neutron_defaults/network_device_mtu": int64(1000)},
			[]string{"network_device_mtu: 1000", "1280"},
		},
		{
			"one router in the dedicated topology",
			map[string]any{"namespace_subnet/topology": "dedicated", "namespace_subnet/pod_router": "edge"},
			[]string{"pod_router", "edge", "topology = dedicated"},
		},
		{
			"one service subnet in the dedicated topology",
			map[string]any{"namespace_subnet/topology": "dedicated", "neutron_defaults/service_subnet": []string{"services"}},
			[]string{"service_subnet", "services", "topology = dedicated"},
		},
		{"an unknown topology", map[string]any{"namespace_subnet/topology": "flat"}, []string{"topology", "flat"}},
		{"unknown IP versions", map[string]any{"namespace_subnet/ip_families": "ipv5"}, []string{"ip_families", "ipv5"}},
		{
			"several problems at once",
			map[string]any{
				"namespace_subnet/topology": "flat", "namespace_subnet/dns_nameservers": []string{"dns.example"},
				"neutron_defaults/network_device_mtu": int64(10),
			},
			[]string{"flat", "dns.example", "10"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := New().Configure(t.Context(), values(t, tc.changes))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "[") {
					t.Errorf("line %q of the error is about no option", line)
				}
			}
			if !errors.As(err, new(*drivers.OptionError)) {
				t.Errorf("error %v is about no option", err)
			}
		})
	}
}

// A pool that is an operator's own is not Raven's to check, and neither are ranges of an IP version that is not used.
func TestConfigureAccepts(t *testing.T) {
	for name, changes := range map[string]map[string]any{
		"defaults":  nil,
		"dual":      {"namespace_subnet/ip_families": "dual"},
		"dedicated": {"namespace_subnet/topology": "dedicated"},
		"the original's external range": {
			"namespace_subnet/cluster_external_subnet": []string{"172.16.0.0/16"},
			"namespace_subnet/service_cidr":            []string{"10.0.0.0/24"},
		},
		"existing pool": {
			"namespace_subnet/pod_subnet_pool": "pods", "namespace_subnet/service_cidr": []string{"192.168.3.0/24"},
		},
		"unused version": {
			"namespace_subnet/ip_families": "ipv6", "namespace_subnet/service_cidr": []string{"fd00:10:96::/112"},
			"namespace_subnet/cluster_subnet_pool": []string{"nonsense"},
		},
	} {
		t.Run(name, func(t *testing.T) { configured(t, changes) })
	}
}

// A reload with a mistake in it leaves the configuration that works.
func TestRefusedReloadChangesNothing(t *testing.T) {
	d := configured(t, nil)
	if err := d.Configure(t.Context(), values(t, map[string]any{"namespace_subnet/topology": "flat"})); err == nil {
		t.Fatal("accepted")
	}
	set, err := translate(t, d)
	if err != nil || len(set.Resources) == 0 {
		t.Errorf("got %d resources, error %v", len(set.Resources), err)
	}
}

func TestTranslateBeforeConfigure(t *testing.T) {
	if _, err := translate(t, New()); !errors.As(err, new(*conf.UnconfiguredError)) {
		t.Errorf("error %v", err)
	}
}

func TestTranslateNotANamespace(t *testing.T) {
	d := configured(t, nil)
	for _, raw := range []string{`{}`, `[]`, `{"metadata":{"name":7}}`} {
		_, err := d.Translate(t.Context(), drivers.Object{Watch: namespaces, Raw: json.RawMessage(raw)},
			drivers.NewNeeds(nil))
		if err == nil {
			t.Errorf("%s: no error", raw)
		}
	}
}

// Where an option says what Kubernetes' ranges are, the cluster is not asked, so no permission is needed.
func TestWatches(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes map[string]any
		want    []string
	}{
		{"from the cluster", nil, []string{namespaces, ranges.ServiceCIDRWatch}},
		{"from the option", map[string]any{"namespace_subnet/service_cidr": []string{"10.96.0.0/12"}}, []string{namespaces}},
		{"existing subnet", map[string]any{"neutron_defaults/service_subnet": []string{"services"}}, []string{namespaces}},
		{"one of two versions from the option", map[string]any{
			"namespace_subnet/service_cidr": []string{"10.96.0.0/12"}, "namespace_subnet/ip_families": "dual",
		}, []string{namespaces, ranges.ServiceCIDRWatch}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, w := range configured(t, tc.changes).Watches() {
				got = append(got, w.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An unanswered need is not an absent one: the round does not count.
func TestUnansweredServiceCIDRs(t *testing.T) {
	needs := drivers.NewNeeds(nil)
	web := object(t, namespaces, map[string]any{"metadata": map[string]any{"name": "web"}})
	set, err := configured(t, nil).Translate(t.Context(), web, needs)
	if err != nil || !needs.Open() || len(set.Resources) > 0 {
		t.Errorf("open %v, %d resources, error %v", needs.Open(), len(set.Resources), err)
	}
}

// What the cluster says about its ranges, and what becomes of it.
func TestServiceRanges(t *testing.T) {
	for _, tc := range []struct {
		name       string
		changes    map[string]any
		cidrs      []drivers.Object
		want       string // CIDR, gateway and pool of the IPv4 service subnet; empty: none
		diagnostic string // reason of the only diagnostic; empty: none
		fails      bool
	}{
		{name: "none known"},
		{
			name: "kubeadm's default", cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "10.96.0.0/12")},
			want: "10.96.0.0/11 10.112.0.1 10.112.0.2-10.127.255.254",
		},
		{
			name:  "the upper half of the next larger range",
			cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "10.112.0.0/12")},
			want:  "10.96.0.0/11 10.96.0.1 10.96.0.2-10.111.255.255",
		},
		{
			name:  "the first is Kubernetes' own object, whatever its place",
			cidrs: []drivers.Object{serviceCIDR(t, "added", "10.200.0.0/24"), serviceCIDR(t, "kubernetes", "10.96.0.0/12")},
			want:  "10.96.0.0/11 10.112.0.1 10.112.0.2-10.127.255.254", diagnostic: "ServiceRangeOutside",
		},
		{
			name:  "a second one inside",
			cidrs: []drivers.Object{serviceCIDR(t, "added", "10.112.0.0/13"), serviceCIDR(t, "kubernetes", "10.96.0.0/12")},
			want:  "10.96.0.0/11 10.120.0.1 10.120.0.2-10.127.255.254",
		},
		{
			name: "configured larger", changes: map[string]any{"neutron_defaults/service_subnet": []string{"10.0.0.0/8"}},
			cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "10.96.0.0/12")},
			want:  "10.0.0.0/8 10.128.0.1 10.128.0.2-10.255.255.254",
		},
		{
			name:       "a second one leaves no room",
			cidrs:      []drivers.Object{serviceCIDR(t, "kubernetes", "10.96.0.0/16"), serviceCIDR(t, "added", "10.97.0.0/16")},
			diagnostic: "NoServiceNetwork",
		},
		{
			name: "IPv6 only in the cluster", cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "fd00:10:96::/112")},
		},
		{
			name: "overlaps the pool", cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "192.168.3.0/24")},
			diagnostic: "NoServiceNetwork",
		},
		{
			name:    "only the next larger range overlaps the pool",
			changes: map[string]any{"namespace_subnet/cluster_subnet_pool": []string{"10.112.0.0/16"}},
			cidrs:   []drivers.Object{serviceCIDR(t, "kubernetes", "10.96.0.0/12")}, diagnostic: "NoServiceNetwork",
		},
		{
			name: "next larger range is not private", cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "172.16.0.0/12")},
			diagnostic: "NoServiceNetwork",
		},
		{
			name: "configured, but unknown what Kubernetes has", diagnostic: "NoServiceNetwork",
			changes: map[string]any{"neutron_defaults/service_subnet": []string{"10.0.0.0/8"}},
		},
		{
			name: "configured elsewhere", changes: map[string]any{"neutron_defaults/service_subnet": []string{"10.0.0.0/16"}},
			cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "10.96.0.0/12")}, fails: true,
		},
		{name: "no range", cidrs: []drivers.Object{serviceCIDR(t, "kubernetes", "everything")}, fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, err := translate(t, configured(t, tc.changes), tc.cidrs...)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if got := laidOut(set); got != tc.want {
				t.Errorf("service subnet %q, want %q", got, tc.want)
			}
			// What there is of a service network must never go because it cannot be laid out.
			for _, name := range []string{"service-network", "service-subnet", "service-router-interface"} {
				if got, want := slices.Contains(set.Undecided, name), tc.want == "" && !tc.fails; got != want {
					t.Errorf("%s undecided: %v, want %v", name, got, want)
				}
			}
			var reasons []string
			for _, d := range set.Diagnostics {
				reasons = append(reasons, d.Reason)
			}
			if got := strings.Join(reasons, " "); got != tc.diagnostic {
				t.Errorf("diagnostics %q, want %q", got, tc.diagnostic)
			}
		})
	}
}

func laidOut(set drivers.Set) string {
	for _, r := range set.Resources {
		if s, ok := r.Spec.(drivers.Subnet); ok && r.Name == "service-subnet" {
			return *s.CIDR + " " + *s.GatewayIP + " " + s.AllocationPools[0].Start + "-" + s.AllocationPools[0].End
		}
	}
	return ""
}

// Claims of one name must agree: whatever the namespace, a claimed resource is the same.
func TestClaimsAgree(t *testing.T) {
	d := configured(t,
		map[string]any{"neutron_defaults/external_svc_net": "public", "namespace_subnet/ip_families": "dual"})
	claims := func(name string) map[string]drivers.Resource {
		needs := drivers.NewNeeds(map[drivers.Need][]drivers.Object{
			{Watch: ranges.ServiceCIDRWatch}: {serviceCIDR(t, "kubernetes", "10.96.0.0/12", "fd00:10:96::/112")},
		})
		set, err := d.Translate(t.Context(),
			object(t, namespaces, map[string]any{"metadata": map[string]any{"name": name}}), needs)
		if err != nil {
			t.Fatal(err)
		}
		claimed := map[string]drivers.Resource{}
		for _, r := range set.Resources {
			if r.Claim != "" {
				claimed[r.Claim] = r
			}
		}
		return claimed
	}
	a, b := claims("a"), claims("b")
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	if len(a) != 8 {
		t.Errorf("%d claims", len(a))
	}
}

func TestName(t *testing.T) {
	long := strings.Repeat("ä", 300)
	if got := []rune(*name(long, "-subnet")); len(got) != 255 || !strings.HasSuffix(string(got), "ä-subnet") {
		t.Errorf("%d characters: %s", len(got), string(got))
	}
	if got := *name("web", "-sg"); got != "web-sg" {
		t.Error(got)
	}
}

// In dual stack one version's part may be decided and the other's not; the network that they share is then decided.
func TestHalfDecided(t *testing.T) {
	d := configured(t, map[string]any{"namespace_subnet/ip_families": "dual"})
	set, err := translate(t, d, serviceCIDR(t, "kubernetes", "10.96.0.0/12"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"service-subnet-v6", "service-router-interface-v6"}, set.Undecided); diff != "" {
		t.Error(diff)
	}
	if laidOut(set) == "" {
		t.Error("there is no IPv4 service subnet")
	}
}
