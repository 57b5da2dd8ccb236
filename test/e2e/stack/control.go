// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// underlay adds the network that hosts are on, and the host of the control plane: a network namespace that leads to the
// API server, and by which the API server reaches nodes and pods.
func (b *builder) underlay() {
	net := b.Net()
	b.step("underlay", []string{"namespace of the switch"}, func(ctx context.Context) error {
		return b.ip(ctx, [][]string{
			{"-n", net.Namespace, "link", "add", underlay, "type", "bridge"},
			{"-n", net.Namespace, "link", "set", underlay, "up"},
		})
	})
	b.step("host of the control plane", []string{"underlay"}, func(ctx context.Context) error {
		return b.host(ctx, net.Control, controlHost, controlHost6)
	})
	listen, to := ":"+b.Port("apiserver"), "127.0.0.1:"+b.Port("apiserver")
	b.component(Component{
		Name: ControlRelay,
		Argv: []string{
			b.Program, "relay", "-space", net.Control, "-listen", listen, "-to", to, "-egress", b.path("egress.sock"),
		},
		Ready: Probe{Path: b.path("egress.sock")}, Clean: []string{b.path("egress.sock")},
	}, "host of the control plane")
}

// host makes the network namespace of a host, with a link to the underlay, an IPv4 and an IPv6 address.
func (s *Stack) host(ctx context.Context, space, address, address6 string) error {
	sw := s.state.Network.Namespace
	outer := uplink(s.state.Network, space)
	if err := s.ip(ctx, [][]string{
		{"netns", "add", space},
		{"-n", sw, "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space},
		{"-n", sw, "link", "set", outer, "master", underlay, "up"},
		{"-n", space, "link", "set", "lo", "up"},
		{"-n", space, "addr", "add", address + "/24", "dev", "eth0"},
		{"-n", space, "addr", "add", address6 + "/64", "dev", "eth0", "nodad"},
		{"-n", space, "link", "set", "eth0", "up"},
	}); err != nil {
		return err
	}
	_, err := s.Run(ctx, "nsenter", "--net=/run/netns/"+space, "sysctl", "-qw", "net.ipv4.ip_forward=1",
		"net.ipv6.conf.all.forwarding=1")
	return err
}

// hostOf is the name of a host by its network namespace.
func hostOf(net Network, space string) string { return strings.TrimPrefix(space, net.Prefix+"-") }

// uplink is the switch's end of the link of a host, by the host's network namespace.
func uplink(net Network, space string) string { return "u-" + hostOf(net, space) }

// tunnelLink is the switch's end of the link that a host's tunnels leave by.
func tunnelLink(net Network, space string) string { return "t-" + hostOf(net, space) }

// ip runs `ip` with each of the arguments.
func (s *Stack) ip(ctx context.Context, commands [][]string) error {
	for _, args := range commands {
		if _, err := s.Run(ctx, append([]string{"ip"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// externalLink is the port of the external network's bridge that leads to the control plane's host.
const externalLink = "x-control"

// externalGateway makes the control plane's host the gateway of the external network: by it pods reach the underlay.
func (s *Stack) externalGateway(ctx context.Context) error {
	net := s.state.Network
	external, err := netip.ParsePrefix(net.ExternalCIDR)
	if err != nil {
		return fmt.Errorf("reading the external network's range: %w", err)
	}
	gateway := external.Masked().Addr().Next()
	bytes := gateway.As4()
	// The gateway is the same machine each time. With another hardware address at the same IP address it would wait until
	// routers believe it.
	mac := fmt.Sprintf("0a:00:%02x:%02x:%02x:%02x", bytes[0], bytes[1], bytes[2], bytes[3])
	if err := s.ip(ctx, [][]string{
		{
			"-n", net.Namespace, "link", "add", externalLink, "type", "veth", "peer", "name", "external", "address", mac,
			"netns", net.Control,
		},
		{"-n", net.Namespace, "link", "set", externalLink, "up"},
		{"-n", net.Control, "addr", "add", gateway.String() + "/" + strconv.Itoa(external.Bits()), "dev", "external"},
		{"-n", net.Control, "link", "set", "external", "up"},
	}); err != nil {
		return err
	}
	if err := s.plainLink(ctx, net.Namespace, externalLink, net.Control, "external"); err != nil {
		return err
	}
	_, err = s.OVS(ctx, "--may-exist", "add-port", net.Provider, externalLink)
	return err
}

func (s *Stack) removeExternalGateway(ctx context.Context) error {
	if _, err := s.OVS(ctx, "--if-exists", "del-port", externalLink); err != nil {
		return err
	}
	return s.removeLink(ctx, externalLink)
}

// removeLink removes a link of the switch's namespace with its peer, if it is there.
func (s *Stack) removeLink(ctx context.Context, name string) error {
	if _, err := s.Run(ctx, "ip", "-n", s.state.Network.Namespace, "link", "show", name); err != nil {
		return nil //nolint:nilerr // it is gone
	}
	_, err := s.Run(ctx, "ip", "-n", s.state.Network.Namespace, "link", "del", name)
	return err
}

// plainLink makes both ends of a link compute all checksums and send whole packets: the userspace datapath sends what
// it gets, and nothing may be left to a network card.
func (s *Stack) plainLink(ctx context.Context, space, link, otherSpace, other string) error {
	for _, end := range [][2]string{{space, link}, {otherSpace, other}} {
		_, err := s.Run(ctx, "nsenter", "--net=/run/netns/"+end[0], "ethtool", "-K", end[1], "tx", "off", "rx", "off",
			"tso", "off", "gso", "off", "gro", "off")
		if err != nil {
			return err
		}
	}
	return nil
}

// PublishAPIServer makes an address of the control plane's host the endpoint of the Service kubernetes, as an API
// server does that does not listen on loopback.
func (s *Stack) PublishAPIServer(ctx context.Context, address string) error {
	if err := s.withdrawAPIServer(ctx); err != nil {
		return err
	}
	kube, err := s.kubeClient()
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections()
	type m = map[string]any
	_, text, _ := strings.Cut(strings.TrimPrefix(s.state.Network.APIServer, "https://"), ":")
	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("reading the API server's port: %w", err)
	}
	ports := []m{{"name": "https", "port": port, "protocol": "TCP"}}
	for url, body := range map[string]m{
		s.endpointURLs()[0]: {
			"apiVersion": "v1", "kind": "Endpoints",
			"metadata": m{"name": "kubernetes", "labels": m{"endpointslice.kubernetes.io/skip-mirror": "true"}},
			"subsets":  []m{{"addresses": []m{{"ip": address}}, "ports": ports}},
		},
		s.endpointURLs()[1]: {
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
			"metadata":  m{"name": "kubernetes", "labels": m{"kubernetes.io/service-name": "kubernetes"}},
			"endpoints": []m{{"addresses": []string{address}, "conditions": m{"ready": true}}},
			"ports":     ports,
		},
	} {
		if err := call(ctx, kube, http.MethodPost, url, nil, body, nil); err != nil {
			return err
		}
	}
	return nil
}

// endpointURLs are where Endpoints and EndpointSlices of the default namespace are.
func (s *Stack) endpointURLs() [2]string {
	api := s.state.Endpoints.Kubernetes
	return [2]string{
		api + "/api/v1/namespaces/default/endpoints",
		api + "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
	}
}

// withdrawAPIServer removes the endpoint again.
func (s *Stack) withdrawAPIServer(ctx context.Context) error {
	var errs []error
	for _, url := range s.endpointURLs() {
		errs = append(errs, s.remove(ctx, url+"/kubernetes"))
	}
	return errors.Join(errs...)
}

// remove deletes an object of Kubernetes. One that is gone is no error.
func (s *Stack) remove(ctx context.Context, url string) error {
	kube, err := s.kubeClient()
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := kube.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 && response.StatusCode != http.StatusNotFound {
		return fmt.Errorf("DELETE %s: %s", url, response.Status)
	}
	return nil
}
