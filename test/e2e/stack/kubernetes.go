// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
)

// The cluster's service addresses: both families, IPv4 first.
const serviceCIDRs = "10.96.0.0/16,fd00:10:96::/112"

// kubernetes adds the control plane, and one node without a kubelet that kwok plays.
func (b *builder) kubernetes() {
	if b.err == nil {
		b.err = b.makeKubernetesPKI()
	}
	b.copyFile("kwok.yaml", "etc/kwok.yaml") // it has templates of its own
	b.write("scheduler.yaml", "etc/scheduler.yaml")
	b.write("audit.yaml", "etc/audit.yaml")
	b.write("egress.yaml", "etc/egress.yaml")
	peer := "http://127.0.0.1:" + b.Port("etcd-peer")
	b.component(Component{
		Name: Etcd,
		Argv: []string{
			b.ControlPlane, "etcd", "--data-dir=" + b.path("etcd"), "--log-level=warn",
			"--unsafe-no-fsync", // the machine is not lost under a test; a killed etcd loses nothing by it
			"--listen-client-urls=" + b.URL().Etcd, "--advertise-client-urls=" + b.URL().Etcd,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		},
		Ready: Probe{URL: b.URL().Etcd + "/health"},
	})
	b.apiServer()
	b.controllers()
	b.component(Component{
		Name: Kwok, After: []string{APIServer},
		Argv: []string{
			b.ControlPlane, "kwok", "--config=" + b.path("etc", "kwok.yaml"),
			"--kubeconfig=" + b.path("pki", "kwok.kubeconfig"), "--manage-nodes-with-label-selector=type=kwok",
			"--node-ip=10.0.0.10", "--node-lease-duration-seconds=40", "--server-address=127.0.0.1:" + b.Port("kwok"),
		},
		Ready: Probe{URL: "http://127.0.0.1:" + b.Port("kwok") + "/healthz"},
	})
	b.step("node and service accounts", []string{ControllerManager, Kwok}, b.awaitNode)
}

func (b *builder) apiServer() {
	pki := func(name string) string { return b.path("pki", name) }
	b.component(Component{
		Name: APIServer, After: []string{Etcd},
		Argv: []string{
			b.ControlPlane, "kube-apiserver", "--etcd-servers=" + b.URL().Etcd,
			"--bind-address=127.0.0.1", "--secure-port=" + b.Port("apiserver"), "--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none", // Endpoints may not hold loopback addresses
			"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--client-ca-file=" + pki("ca.crt"),
			"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--service-cluster-ip-range=" + serviceCIDRs,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + pki("sa.key"), "--service-account-signing-key-file=" + pki("sa.key"),
			"--requestheader-client-ca-file=" + pki("ca.crt"), "--requestheader-allowed-names=front-proxy",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + pki("front-proxy.crt"), "--proxy-client-key-file=" + pki("front-proxy.key"),
			"--enable-aggregator-routing=true", "--egress-selector-config-file=" + b.path("etc", "egress.yaml"),
			"--kubelet-client-certificate=" + pki("kubelet-client.crt"), "--kubelet-client-key=" + pki("kubelet-client.key"),
			"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--audit-policy-file=" + b.path("etc", "audit.yaml"),
			"--audit-log-path=" + b.path("artifacts", "log", "kube-apiserver-requests.log"),
			"--audit-log-mode=batch",
			"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500", "--shutdown-delay-duration=0s",
		},
		Ready: b.kubeProbe(b.URL().Kubernetes + "/readyz"),
	})
}

func (b *builder) controllers() {
	pki := func(name string) string { return b.path("pki", name) }
	b.component(Component{
		Name: ControllerManager, After: []string{APIServer},
		Argv: []string{
			b.ControlPlane, "kube-controller-manager", "--kubeconfig=" + pki("controller-manager.kubeconfig"),
			"--authentication-kubeconfig=" + pki("controller-manager.kubeconfig"),
			"--authorization-kubeconfig=" + pki("controller-manager.kubeconfig"),
			"--bind-address=127.0.0.1", "--secure-port=" + b.Port("controller-manager"), "--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + pki("sa.key"), "--root-ca-file=" + pki("ca.crt"),
			"--cluster-signing-cert-file=" + pki("ca.crt"), "--cluster-signing-key-file=" + pki("ca.key"),
			"--service-cluster-ip-range=" + serviceCIDRs, "--kube-api-qps=2000", "--kube-api-burst=4000",
			"--concurrent-deployment-syncs=20",
			"--concurrent-replicaset-syncs=20", "--concurrent-namespace-syncs=20", "--concurrent-gc-syncs=40",
		},
		Ready: Probe{URL: "https://127.0.0.1:" + b.Port("controller-manager") + "/healthz"},
	})
	b.component(Component{
		Name: Scheduler, After: []string{APIServer},
		Argv: []string{
			b.ControlPlane, "kube-scheduler", "--config=" + b.path("etc", "scheduler.yaml"), "--bind-address=127.0.0.1",
			"--secure-port=" + b.Port("scheduler"),
			"--authentication-kubeconfig=" + pki("scheduler.kubeconfig"),
			"--authorization-kubeconfig=" + pki("scheduler.kubeconfig"),
		},
		Ready: Probe{URL: "https://127.0.0.1:" + b.Port("scheduler") + "/readyz"},
	})
}

func (b *builder) kubeProbe(url string) Probe {
	return Probe{URL: url, CA: b.path("pki", "ca.crt"), Cert: b.path("pki", "admin.crt"), Key: b.path("pki", "admin.key")}
}

// awaitNode makes the node, and waits until pods can be made and run: the node is ready, and the default namespace
// has its service account.
func (b *builder) awaitNode(ctx context.Context) error {
	content, err := files.ReadFile("files/node.json")
	if err != nil {
		return err
	}
	kube, err := b.kubeClient()
	if err != nil {
		return err
	}
	nodes := b.URL().Kubernetes + "/api/v1/nodes"
	if err := call(ctx, kube, http.MethodPost, nodes, nil, json.RawMessage(content), nil); err != nil {
		return err
	}
	var last error
	err = poll(ctx, func() bool {
		var node struct {
			Spec   struct{ Taints []any }
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		if last = call(ctx, kube, http.MethodGet, nodes+"/"+b.Net().Chassis, nil, nil, &node); last != nil {
			return false
		}
		last = fmt.Errorf("the node is not ready or has taints: %+v", node)
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" && len(node.Spec.Taints) == 0 {
				last = call(ctx, kube, http.MethodGet, b.URL().Kubernetes+"/api/v1/namespaces/default/serviceaccounts/default",
					nil, nil, nil)
			}
		}
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w\n%s", err, last, Tail(b.path("artifacts", "log", Kwok+".log"), tail))
	}
	return nil
}

// makeKubernetesPKI makes the certificates, and a kubeconfig for each that acts as a client.
func (b *builder) makeKubernetesPKI() error {
	ca, err := newAuthority(b.path("pki"), "raven-e2e")
	if err != nil {
		return err
	}
	hosts := []string{
		"127.0.0.1", "10.96.0.1", "fd00:10:96::1", controlHost, "localhost", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc",
	}
	if err := ca.issue("apiserver", "kube-apiserver", "", hosts...); err != nil {
		return err
	}
	for _, c := range []struct{ name, subject, group, server string }{
		{"admin", "admin", "system:masters", b.URL().Kubernetes},
		{"controller-manager", "system:kube-controller-manager", "", b.URL().Kubernetes},
		{"scheduler", "system:kube-scheduler", "", b.URL().Kubernetes},
		{"kwok", "kwok", "system:masters", b.URL().Kubernetes},
		{"front-proxy", "front-proxy", "", b.URL().Kubernetes},
		{"kubelet-client", "kube-apiserver-kubelet-client", "system:masters", b.URL().Kubernetes},
		{KubeProxy, "system:kube-proxy", "", b.Net().APIServer},
	} {
		if err := b.identity(ca, c.name, c.subject, c.group, c.server); err != nil {
			return err
		}
	}
	for _, n := range b.state.Nodes {
		err := errors.Join(b.identity(ca, n.Name, "system:node:"+n.Name, "system:nodes", b.Net().APIServer),
			ca.issue(n.Name+"-server", n.Name, "", n.Address, n.Name))
		if err != nil {
			return err
		}
	}
	for path, server := range map[string]string{
		b.Kubeconfig(): b.URL().Kubernetes, b.Net().Kubeconfig: b.Net().APIServer,
	} {
		if err := b.writeKubeconfig("admin", path, server); err != nil {
			return err
		}
	}
	_, err = newKey(b.path("pki", "sa.key"))
	return err
}

// identity makes a client's certificate and its kubeconfig.
func (b *builder) identity(ca *authority, name, subject, group, server string) error {
	if err := ca.issue(name, subject, group); err != nil {
		return err
	}
	return b.writeKubeconfig(name, b.path("pki", name+".kubeconfig"), server)
}

func (b *builder) writeKubeconfig(user, path, server string) error {
	var data [3][]byte // encoded as base64 by json
	for i, name := range []string{"ca.crt", user + ".crt", user + ".key"} {
		content, err := os.ReadFile(b.path("pki", name))
		if err != nil {
			return err
		}
		data[i] = content
	}
	type m = map[string]any
	content, err := json.MarshalIndent(m{
		"apiVersion": "v1", "kind": "Config", "current-context": "e2e",
		"clusters": []m{{"name": "e2e", "cluster": m{"server": server, "certificate-authority-data": data[0]}}},
		"users":    []m{{"name": user, "user": m{"client-certificate-data": data[1], "client-key-data": data[2]}}},
		"contexts": []m{{"name": "e2e", "context": m{"cluster": "e2e", "user": user}}},
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
