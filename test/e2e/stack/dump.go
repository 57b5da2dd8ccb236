// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// Dump writes what Neutron, Octavia, OVN, Open vSwitch and Kubernetes hold to Artifacts/name, for a person to
// compare. What cannot be had has the reason in its file; the error is for files that cannot be written.
func (s *Stack) Dump(ctx context.Context, name string) error {
	dir := filepath.Join(s.Artifacts(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	write := func(file string, content []byte, err error) {
		if err != nil {
			content = append(content, []byte("\n"+err.Error()+"\n")...)
		}
		errs = append(errs, os.WriteFile(filepath.Join(dir, file), content, 0o644))
	}
	for file, argv := range s.views() {
		out, err := s.Run(ctx, argv...)
		write(file, []byte(out), err)
	}
	b := &builder{Stack: s}
	cloud, err := b.login(ctx, "admin", "admin")
	for _, kind := range []string{
		"networks", "subnets", "subnetpools", "ports", "routers", "security-groups", "floatingips", "quotas",
	} {
		if err == nil {
			var content []byte
			content, err := get(ctx, cloud.http, s.Endpoints().Neutron+"/v2.0/"+kind, cloud.header)
			write("neutron-"+kind+".json", content, err)
		}
	}
	for _, kind := range []string{"loadbalancers", "listeners", "pools", "healthmonitors"} {
		if err == nil {
			content, err := get(ctx, cloud.http, s.Endpoints().Octavia+"/v2.0/lbaas/"+kind, cloud.header)
			write("octavia-"+kind+".json", content, err)
		}
	}
	if err != nil {
		write("openstack.txt", nil, err)
	}
	kube, err := s.kubeClient()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer kube.CloseIdleConnections()
	for _, path := range []string{
		"api/v1/nodes", "api/v1/namespaces", "api/v1/pods", "api/v1/services", "apis/discovery.k8s.io/v1/endpointslices",
		"api/v1/events",
	} {
		content, err := get(ctx, kube, s.Endpoints().Kubernetes+"/"+path, nil)
		write("kubernetes-"+filepath.Base(path)+".json", content, err)
	}
	return errors.Join(errs...)
}

// views are the programs that show what OVN and Open vSwitch hold, by the file that gets it. `show` has neither load
// balancers nor what they stand in.
func (s *Stack) views() map[string][]string {
	net := s.Network()
	north := func(args ...string) []string {
		return append([]string{"ovn-nbctl", "--timeout=20", "--db=" + net.OVNNorth}, args...)
	}
	views := map[string][]string{
		"ovn-nb.txt":                     north("show"),
		"ovn-nb-loadbalancers.txt":       north("list", "Load_Balancer"),
		"ovn-nb-loadbalancer-groups.txt": north("list", "Load_Balancer_Group"),
		"ovn-nb-loadbalanced-switches.txt": north("--columns=name,load_balancer,load_balancer_group", "list",
			"Logical_Switch"),
		"ovn-nb-loadbalanced-routers.txt": north("--columns=name,load_balancer,load_balancer_group", "list",
			"Logical_Router"),
		"ovn-sb.txt": {"ovn-sbctl", "--timeout=20", "--db=" + net.OVNSouth, "show"},
		"ovn-sb-bindings.txt": {
			"ovn-sbctl", "--timeout=20", "--db=" + net.OVNSouth, "--columns=logical_port,type,chassis,up,options", "list",
			"Port_Binding",
		},
		"ovs.txt": {"ovs-vsctl", "--timeout=20", "--db=" + net.OVS, "show"},
	}
	s.switchViews(views, "", s.path("ovs"))
	for _, n := range s.Nodes() {
		if s.Running(On(Vswitchd, n)) {
			views["ovs-"+n.Name+".txt"] = []string{"ovs-vsctl", "--timeout=20", "--db=" + n.OVS, "show"}
			views["ovs-interfaces-"+n.Name+".txt"] = []string{
				"ovs-vsctl", "--timeout=20", "--db=" + n.OVS, "--columns=name,external_ids,ofport,error,link_state", "list",
				"Interface",
			}
			s.switchViews(views, "-"+n.Name, s.chassisOf(n).dir)
		}
	}
	return views
}

// switchViews adds what an ovs-vswitchd knows of the way to other chassis, and its flows.
func (s *Stack) switchViews(views map[string][]string, suffix, dir string) {
	ask := func(file string, args ...string) {
		views[file+suffix+".txt"] = append([]string{"ovs-appctl", "-t", filepath.Join(dir, "vswitchd.ctl")}, args...)
	}
	ask("ovs-routes", "ovs/route/show")
	ask("ovs-tunnel-neighbours", "tnl/neigh/show")
	ask("ovs-tunnel-ports", "tnl/ports/show")
	ask("ovs-datapath-flows", "dpctl/dump-flows")
	ask("ovs-flows", "bridge/dump-flows", s.Network().Bridge)
}

// get is a GET whose JSON is indented.
func get(ctx context.Context, client *http.Client, url string, header http.Header) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return content, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	var out bytes.Buffer
	err = json.Indent(&out, content, "", " ")
	return out.Bytes(), err
}
