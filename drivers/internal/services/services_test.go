// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/drivers"
)

// service decodes a Service of YAML, after the trimming that its watch does.
func service(t *testing.T, text string) *Service {
	t.Helper()
	s, err := Decode(trimmed(t, Watch("kuryr.org/x"), text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func trimmed(t *testing.T, watch drivers.Watch, text string) drivers.Object {
	t.Helper()
	object, err := watch.Object(parsed(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// ask answers Ask's needs from documents of YAML, as the core would.
func ask(t *testing.T, s *Service, documents ...string) ([]Port, []string) {
	t.Helper()
	answers := map[drivers.Need][]drivers.Object{}
	for range drivers.MaxRounds {
		needs := drivers.NewNeeds(answers)
		ports, known, err := Ask(needs, s)
		if err != nil {
			t.Fatal(err)
		}
		if known != !needs.Open() {
			t.Fatalf("known %v, open %v", known, needs.Open())
		}
		if known {
			var asked []string
			for _, need := range needs.Asked() {
				asked = append(asked, need.String())
			}
			return ports, asked
		}
		for _, need := range needs.Asked() {
			var objects []map[string]any
			for _, text := range documents {
				objects = append(objects, parsed(t, text))
			}
			found, err := drivers.Answer(EndpointWatches(), need, objects)
			if err != nil {
				t.Fatal(err)
			}
			answers[need] = found
		}
	}
	t.Fatal("the needs did not settle")
	return nil, nil
}

// shown renders ports in short: name:protocol:port=backends.
func shown(ports []Port) string {
	var out []string
	for i := range ports {
		p := &ports[i]
		text := fmt.Sprintf("%s:%s:%d=", p.Name, p.Protocol, p.Port)
		var backends []string
		for _, b := range p.Backends {
			one := fmt.Sprintf("%s@%d", b.Addr, b.Port)
			if b.Pod.Name != "" {
				one += "(" + b.Pod.Namespace + "/" + b.Pod.Name + ")"
			}
			if b.Terminating {
				one += "!"
			}
			backends = append(backends, one)
		}
		out = append(out, text+strings.Join(backends, ","))
	}
	return strings.Join(out, " ")
}

const web = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}}`

// slice writes an EndpointSlice of Service web; rest is the remainder of the document in flow style.
func slice(name, rest string) string {
	return fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: shop, labels: {kubernetes.io/service-name: web}}, %s}`, name, rest)
}

func TestBackends(t *testing.T) {
	for _, tc := range []struct {
		name, reason, service string
		documents             []string
		want                  string
	}{
		{
			"ready by default", "conditions that are not said count as ready", web,
			[]string{
				slice("a",
					`addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.2]}, {addresses: [10.0.0.1]}]`),
			},
			":TCP:80=10.0.0.1@8080,10.0.0.2@8080",
		},
		{
			"no endpoints", "a Service scaled to zero still has its ports", web,
			[]string{slice("a", `addressType: IPv4, ports: [], endpoints: []`)},
			":TCP:80=",
		},
		{"nothing at all", "a Service without a selector may have neither", web, nil, ":TCP:80="},
		{
			"not ready", "only ready endpoints get traffic", web,
			[]string{slice("a", `addressType: IPv4, ports: [{port: 8080}], endpoints: [
				{addresses: [10.0.0.1], conditions: {ready: false, serving: false}}, {addresses: [10.0.0.2], conditions: {ready: true}}]`)},
			":TCP:80=10.0.0.2@8080",
		},
		{
			"terminating beside ready", "what terminates gets no new connections while others are ready", web,
			[]string{slice("a", `addressType: IPv4, ports: [{port: 8080}], endpoints: [
				{addresses: [10.0.0.1], conditions: {ready: false, serving: true, terminating: true}}, {addresses: [10.0.0.2]}]`)},
			":TCP:80=10.0.0.2@8080",
		},
		{
			"only terminating", "better those that still serve than none", web,
			[]string{slice("a", `addressType: IPv4, ports: [{port: 8080}], endpoints: [
				{addresses: [10.0.0.1], conditions: {ready: false, serving: true, terminating: true}},
				{addresses: [10.0.0.2], conditions: {ready: false, serving: false, terminating: true}},
				{addresses: [10.0.0.3], conditions: {ready: false, serving: true, terminating: false}}]`)},
			":TCP:80=10.0.0.1@8080!",
		},
		{
			"publishNotReadyAddresses", "the cluster's controller then says ready of everything, of what terminates too",
			`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.9, publishNotReadyAddresses: true, ports: [{port: 80}]}}`,
			[]string{slice("a", `addressType: IPv4, ports: [{port: 8080}], endpoints: [
				{addresses: [10.0.0.1], conditions: {ready: true, serving: false}},
				{addresses: [10.0.0.2], conditions: {ready: true, serving: false, terminating: true}}]`)},
			":TCP:80=10.0.0.1@8080,10.0.0.2@8080!",
		},
		{
			"several named ports", "a port finds its endpoints by name and protocol, whatever their numbers are",
			`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.9, ports: [
				{name: dns, protocol: UDP, port: 53}, {name: dns-tcp, protocol: TCP, port: 53}, {name: sig, protocol: SCTP, port: 9}]}}`,
			[]string{
				slice("a",
					`addressType: IPv4, ports: [{name: dns, protocol: UDP, port: 5353}, {name: dns-tcp, port: 5354}, {name: sig, protocol: SCTP, port: 9}, {name: other, port: 1}], endpoints: [{addresses: [10.0.0.1]}]`),
			},
			"dns:UDP:53=10.0.0.1@5353 dns-tcp:TCP:53=10.0.0.1@5354 sig:SCTP:9=10.0.0.1@9",
		},
		{
			"named target port of several numbers", "pods of two generations may give one name to two numbers",
			`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.9, ports: [{name: http, port: 80, targetPort: http}]}}`,
			[]string{
				slice("a", `addressType: IPv4, ports: [{name: http, port: 8080}], endpoints: [{addresses: [10.0.0.1]}]`),
				slice("b",
					`addressType: IPv4, ports: [{name: http, port: 9090}], endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]`),
			},
			"http:TCP:80=10.0.0.1@8080,10.0.0.1@9090,10.0.0.2@9090",
		},
		{
			"in two slices", "while an endpoint moves it is in both, and the better word counts", web,
			[]string{
				slice("a",
					`addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1], conditions: {ready: false}}, {addresses: [10.0.0.2]}]`),
				slice("b",
					`addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: p, namespace: shop}}, {addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}}]`),
			},
			":TCP:80=10.0.0.1@8080(shop/p),10.0.0.2@8080",
		},
		{
			"both IP versions", "each version stands for itself: one may be down to what terminates", web,
			[]string{
				slice("a", `addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1]}]`),
				slice("b",
					`addressType: IPv6, ports: [{port: 8080}], endpoints: [{addresses: ["fd00::1"], conditions: {ready: false, serving: true, terminating: true}}]`),
			},
			":TCP:80=10.0.0.1@8080,fd00::1@8080!",
		},
		{
			"domain names", "no backend balances over a name", web,
			[]string{slice("a", `addressType: FQDN, ports: [{port: 8080}], endpoints: [{addresses: [example.org]}]`)},
			":TCP:80=",
		},
		{
			"several addresses of one endpoint", "they are the same endpoint: the first counts", web,
			[]string{
				slice("a",
					`addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1, 10.0.0.2]}, {addresses: []}]`),
			},
			":TCP:80=10.0.0.1@8080",
		},
		{
			"port without a number", "it means all ports, which no Service can name", web,
			[]string{slice("a", `addressType: IPv4, ports: [{name: ""}], endpoints: [{addresses: [10.0.0.1]}]`)},
			":TCP:80=",
		},
		{
			"another Service's slice", "a slice belongs to the Service of its label", web,
			[]string{
				`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x, namespace: shop, labels: {kubernetes.io/service-name: db}}, addressType: IPv4, ports: [{port: 1}], endpoints: [{addresses: [10.0.0.1]}]}`,
			},
			":TCP:80=",
		},
		{
			"pod of the slice's namespace", "a targetRef need not repeat the namespace", web,
			[]string{
				slice("a",
					`addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1], nodeName: n1, targetRef: {kind: Pod, name: p}}, {addresses: [10.0.0.2], targetRef: {kind: Node, name: n1}}]`),
			},
			":TCP:80=10.0.0.1@8080(shop/p),10.0.0.2@8080",
		},
		{
			"Endpoints", "a cluster of before EndpointSlices",
			`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.9, ports: [{name: http, port: 80}, {name: dns, protocol: UDP, port: 53}]}}`,
			[]string{`{apiVersion: v1, kind: Endpoints, metadata: {name: web, namespace: shop}, subsets: [
				{addresses: [{ip: 10.0.0.2, targetRef: {kind: Pod, name: b, namespace: shop}}, {ip: 10.0.0.1}],
				  notReadyAddresses: [{ip: 10.0.0.3}], ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]},
				{addresses: [{ip: 10.0.0.1}], ports: [{name: http, port: 8080}]}, {addresses: [{ip: 10.0.0.4}]}]}`},
			"http:TCP:80=10.0.0.1@8080,10.0.0.2@8080(shop/b) dns:UDP:53=10.0.0.1@53,10.0.0.2@53(shop/b)",
		},
		{
			"Endpoints of no Service", "leader election is done with some", web,
			[]string{
				`{apiVersion: v1, kind: Endpoints, metadata: {name: web, namespace: shop, labels: {endpointslice.kubernetes.io/skip-mirror: "true"}}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 8080}]}]}`,
			},
			":TCP:80=",
		},
		{
			"slices before Endpoints", "an empty slice says: none, whatever stale Endpoints say", web,
			[]string{
				slice("a", `addressType: IPv4, endpoints: []`),
				`{apiVersion: v1, kind: Endpoints, metadata: {name: web, namespace: shop}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 8080}]}]}`,
			},
			":TCP:80=",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ports, _ := ask(t, service(t, tc.service), tc.documents...)
			if diff := cmp.Diff(tc.want, shown(ports)); diff != "" {
				t.Errorf("%s:\n%s", tc.reason, diff)
			}
		})
	}
}

// Where there are slices, Endpoints are not asked for, so that their changes requeue no Service.
func TestAsksEndpointsOnlyWithoutSlices(t *testing.T) {
	s := service(t, web)
	_, asked := ask(t, s, slice("a", `addressType: IPv4, endpoints: []`))
	if diff := cmp.Diff([]string{`endpointslices shop/* selected by "kubernetes.io/service-name=web"`},
		asked); diff != "" {
		t.Error(diff)
	}
	if _, asked = ask(t, s); len(asked) != 2 || asked[1] != "endpoints shop/web" {
		t.Errorf("asked %q", asked)
	}
}

func TestOf(t *testing.T) {
	ports, _ := ask(t, service(t, web),
		slice("a", `addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1]}]`),
		slice("b", `addressType: IPv6, ports: [{port: 8080}], endpoints: [{addresses: ["fd00::1"]}]`))
	if v4, v6 := ports[0].Of(true), ports[0].Of(false); len(v4) != 1 || !v4[0].Addr.Is4() || len(v6) != 1 ||
		!v6[0].Addr.Is6() {
		t.Errorf("IPv4 %v, IPv6 %v", v4, v6)
	}
}

func TestUnreadable(t *testing.T) {
	s := service(t, web)
	for _, need := range []drivers.Need{
		{Watch: slicesWatch, Namespace: "shop", Selector: "kubernetes.io/service-name=web"},
		{Watch: endpointsWatch, Namespace: "shop", Name: "web"},
	} {
		answers := map[drivers.Need][]drivers.Object{
			{Watch: slicesWatch, Namespace: "shop", Selector: "kubernetes.io/service-name=web"}: nil,
		}
		answers[need] = []drivers.Object{{Watch: need.Watch, Raw: json.RawMessage(`{"endpoints":1,"subsets":1}`)}}
		if _, known, err := Ask(drivers.NewNeeds(answers), s); err == nil || !known {
			t.Errorf("%s: known %v, error %v", need, known, err)
		}
	}
	for _, raw := range []string{`[]`, `{}`, `{"metadata":{"name":"a"}}`} {
		if _, err := Decode(drivers.Object{Watch: "services", Raw: json.RawMessage(raw)}); err == nil {
			t.Errorf("%s: no error", raw)
		}
	}
}

func TestProxied(t *testing.T) {
	for _, tc := range []struct {
		name, reason, service string
		want                  bool
	}{
		{"ordinary", "it has an address", web, true},
		{"headless", "it has none", `{metadata: {name: a, namespace: b}, spec: {clusterIP: None}}`, false},
		{"no address yet", "there is nothing to serve", `{metadata: {name: a, namespace: b}, spec: {}}`, false},
		{
			"ExternalName", "it is a DNS matter",
			`{metadata: {name: a, namespace: b}, spec: {type: ExternalName, clusterIP: 10.96.0.9}}`, false,
		},
		{
			"another proxy's", "the label takes it out of the cluster's proxy",
			`{metadata: {name: a, namespace: b, labels: {service.kubernetes.io/service-proxy-name: mesh}}, spec: {clusterIP: 10.96.0.9}}`, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := service(t, tc.service).Proxied(); got != tc.want {
				t.Errorf("%v: %s", got, tc.reason)
			}
		})
	}
}

func TestClusterIPs(t *testing.T) {
	for _, tc := range []struct {
		name, spec, want string
	}{
		{"old cluster", `clusterIP: 10.96.0.9`, "[10.96.0.9]"},
		{"single", `clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9]`, "[10.96.0.9]"},
		{"dual", `clusterIP: "fd00::9", clusterIPs: ["fd00::9", 10.96.0.9]`, "[fd00::9 10.96.0.9]"},
		{"no address", `clusterIP: x`, "error"},
		{"zone", `clusterIP: "fe80::1%eth0"`, "error"},
		{"two of a kind", `clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9, 10.96.0.10]`, "error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addrs, err := service(t, `{metadata: {name: a, namespace: b}, spec: {`+tc.spec+`}}`).ClusterIPs()
			got := fmt.Sprint(addrs)
			if err != nil {
				got = "error"
			}
			if got != tc.want {
				t.Errorf("got %s (%v), want %s", got, err, tc.want)
			}
		})
	}
}

func TestAffinity(t *testing.T) {
	for _, tc := range []struct {
		spec     string
		clientIP bool
		seconds  int64
	}{
		{`{}`, false, 0},
		{`{sessionAffinity: None}`, false, 0},
		{`{sessionAffinity: ClientIP}`, true, 10800},
		{`{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}}`, true, 60},
	} {
		clientIP, seconds := service(t, `{metadata: {name: a, namespace: b}, spec: `+tc.spec+`}`).Affinity()
		if clientIP != tc.clientIP || seconds != tc.seconds {
			t.Errorf("%s: %v, %d s", tc.spec, clientIP, seconds)
		}
	}
}

func TestDefaultProtocol(t *testing.T) {
	if got := service(t, web).Spec.Ports[0].Protocol; got != "TCP" {
		t.Errorf("%q", got)
	}
}

// What is read of a Service must come through its watch.
func TestWatchKeepsWhatIsRead(t *testing.T) {
	s := service(t, `
metadata: {name: a, namespace: b, uid: u, labels: {service.kubernetes.io/service-proxy-name: p},
  annotations: {kuryr.org/x: v, other: w}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9], selector: {a: b}, ports: [{name: p,
  port: 1, nodePort: 2, protocol: UDP}],
  sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}, externalIPs: [203.0.113.1],
    loadBalancerIP: 203.0.113.2,
  loadBalancerClass: c, loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Local, internalTrafficPolicy: Local, healthCheckNodePort: 3}`)
	if len(s.Metadata.Annotations) != 1 || len(s.Metadata.Labels) != 1 || s.Metadata.UID != "u" || s.Name() != "b/a" {
		t.Errorf("metadata %+v", s.Metadata)
	}
	raw, err := json.Marshal(s.Spec)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range parsed(t, string(raw)) {
		switch value := value.(type) {
		case nil:
			t.Errorf("spec.%s was trimmed away", name)
		case string:
			if value == "" {
				t.Errorf("spec.%s was trimmed away", name)
			}
		}
	}
}
