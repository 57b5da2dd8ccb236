// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/services"
	"github.com/kuryr/raven/drivers/kubeproxy"
	"github.com/kuryr/raven/drivers/lbaas"
	"github.com/kuryr/raven/plugins/sdktest"
)

// FuzzAnnotations has both drivers translate a Service with any annotations, its own and those that were written on
// it, and any addresses. Each gives an error, or a valid Set; the same one when it is asked again.
func FuzzAnnotations(f *testing.F) {
	const id = "00000007-0000-4000-8000-000000000000"
	line := func(key, value string) string {
		return string(rune('!'+slices.Index(annotationKeys(), key))) + value + "\n"
	}
	f.Add("", "", "", "", "", "10.96.0.9")
	f.Add(line(services.LBMethod, "source_ip")+line(services.ProxyProtocol, "v2"),
		line(services.SourceRangesAnnotation, "10.0.0.0/8"),
		"LoadBalancer", "172.24.4.5", "010.0.0.0/08", "fd00::9")
	f.Add(line(services.MonitorDelay, "1")+line(services.HealthMonitor, "true")+line(services.ClassAnnotation, "gold"), "",
		"LoadBalancer", "x", "0.0.0.0/0,::/0", "10.96.0.9,fd00::9")
	f.Add(line(services.ProviderAnnotation, "ovn")+line(services.VIPNetwork, id)+line(services.FloatingSubnet, id)+
		line(services.KeepFloatingIP, "maybe")+line(services.InternalAnnotation, "1"),
		line(services.FloatingIPAnnotation, `{"floating_ip_address":"172.24.4.5","floating_network_id":"`+id+`"}`)+
			line(services.AddressAnnotation, "fd00::5%eth0"), "ClusterIP", "::ffff:1.2.3.4", "", "10.96.0.9")
	translating := []drivers.Driver{configured(f, lbaas.New()), configured(f, kubeproxy.New())}
	f.Fuzz(func(t *testing.T, own, written, kind, address, ranges, clusterIPs string) {
		service := serviceOf(kind, address, ranges, clusterIPs)
		metadata := map[string]any{"name": "web", "namespace": "shop", "uid": id}
		service["metadata"] = metadata
		for _, driver := range translating {
			metadata["annotations"] = annotationsOf(own)
			first, err := translate(t, driver, service, annotationsOf(written))
			if err == nil {
				if err := first.Validate(driver.Info()); err != nil {
					t.Errorf("driver %s gives a Set that is not valid: %v", driver.Info().Name, err)
				}
			}
			again, secondErr := translate(t, driver, service, annotationsOf(written))
			if (err == nil) != (secondErr == nil) || !reflect.DeepEqual(first.Render(), again.Render()) {
				t.Errorf("driver %s gives another answer when it is asked again", driver.Info().Name)
			}
		}
	})
}

func annotationKeys() []string { return append(services.Annotations(), services.Written()...) }

// annotationsOf reads a line for each annotation: a byte that selects the key, and the value.
func annotationsOf(text string) map[string]any {
	keys, out := annotationKeys(), map[string]any{}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			out[keys[int(line[0]-'!')%len(keys)]] = line[1:]
		}
	}
	return out
}

func serviceOf(kind, address, ranges, clusterIPs string) map[string]any {
	list := func(text string) []any {
		var out []any
		for part := range strings.SplitSeq(text, ",") {
			if part != "" {
				out = append(out, part)
			}
		}
		return out
	}
	ips := list(clusterIPs)
	spec := map[string]any{
		"type": kind, "clusterIPs": ips, "loadBalancerIP": address, "loadBalancerSourceRanges": list(ranges),
		"externalIPs": list(address), "selector": map[string]any{"app": "web"},
		"ports": []any{map[string]any{"name": "http", "protocol": "TCP", "port": int64(80), "targetPort": int64(8080)}},
	}
	if len(ips) > 0 {
		spec["clusterIP"] = ips[0]
	}
	return map[string]any{"apiVersion": "v1", "kind": "Service", "spec": spec}
}

func configured(f *testing.F, driver drivers.Driver) drivers.Driver {
	f.Helper()
	return sdktest.Configured(f, driver, map[string]map[string]any{
		conf.DefaultsGroup: {conf.OptExternalNetwork: "00000008-0000-4000-8000-000000000000"},
		conf.SubnetGroup:   {conf.OptFamilies: conf.DualStack},
	})
}

// translate answers a driver's needs from the Service, an EndpointSlice and a Pod, as the core would.
func translate(t *testing.T, driver drivers.Driver, service, written map[string]any) (drivers.Set, error) {
	t.Helper()
	metadata := map[string]any{"name": "web", "namespace": "shop", "annotations": written}
	objects := []map[string]any{
		{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service["spec"]},
		{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
			"metadata": map[string]any{
				"name": "web-1", "namespace": "shop", "labels": map[string]any{"kubernetes.io/service-name": "web"},
			},
			"ports": []any{map[string]any{"name": "http", "protocol": "TCP", "port": int64(8080)}},
			"endpoints": []any{map[string]any{
				"addresses": []any{"10.0.0.5"}, "targetRef": map[string]any{"kind": "Pod", "name": "web-0", "namespace": "shop"},
			}},
		},
		{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web-0", "namespace": "shop"}},
	}
	object, err := driver.Watches()[0].Object(service)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[drivers.Need][]drivers.Object{}
	for range drivers.MaxRounds {
		needs := drivers.NewNeeds(answers)
		set, err := driver.Translate(t.Context(), object, needs)
		if !needs.Open() {
			return set, err
		}
		for _, need := range needs.Asked() {
			if answers[need], err = drivers.Answer(driver.Watches(), need, objects); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatalf("the needs of driver %s do not settle", driver.Info().Name)
	return drivers.Set{}, nil
}
