// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// kubeProxy is Kubernetes' own kube-proxy in a network namespace that stands for a node.
type kubeProxy struct {
	node                     *nic
	program, kubeconfig, log string
	process                  *exec.Cmd // nil while it does not run
}

// newKubeProxy prepares it. It ends with the test.
func newKubeProxy(t *testing.T, node *nic) *kubeProxy {
	t.Helper()
	server, err := world.stack.Component(stack.APIServer)
	if err != nil {
		t.Fatal(err)
	}
	p := &kubeProxy{
		node: node, program: server.Argv[0], // one program is all of Kubernetes' servers
		log: filepath.Join(world.artifacts, t.Name(), "kube-proxy.log"),
	}
	p.kubeconfig = p.relay(t)
	t.Cleanup(p.end)
	return p
}

// relay lets the node reach the API server, which listens on the machine's own loopback, and returns a kubeconfig
// that goes that way.
func (p *kubeProxy) relay(t *testing.T) string {
	t.Helper()
	server, err := url.Parse(world.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := stack.ListenIn(t.Context(), p.node.space, "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening in network namespace %s: %v", p.node.space, err)
	}
	t.Cleanup(harness.NewProxyAt(listener, server.Host).Close)
	conf, err := clientcmd.LoadFromFile(world.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conf.Clusters {
		c.Server, c.TLSServerName = "https://"+listener.Addr().String(), server.Hostname()
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*conf, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// begin starts it on a node that knows nothing of Services yet, and returns when it has programmed what there is.
func (p *kubeProxy) begin(t *testing.T, flags ...string) {
	t.Helper()
	p.end()
	in := func(args ...string) []string { return append([]string{"ip", "netns", "exec", p.node.space}, args...) }
	if _, err := sh(t.Context(), in("nft", "flush", "ruleset")...); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	args := in(p.program, "kube-proxy", "--proxy-mode=nftables",
		"--kubeconfig="+p.kubeconfig, "--hostname-override="+world.stack.Network().Chassis, "--v=2",
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
		"--conntrack-max-per-core=0", "--conntrack-min=0", // the machine's own limits stay
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
	cmd := exec.CommandContext(context.Background(), args[0], slices.Concat(args[1:], flags)...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.process = cmd
	known, _ := addressOf(t, "default", "kubernetes")
	await(t, "kube-proxy to program the Service kubernetes", func(ctx context.Context) string {
		rules, err := sh(ctx, in("nft", "list", "table", "ip", "kube-proxy")...)
		if err != nil || !strings.Contains(rules, known) {
			return fmt.Sprintf("it has not (%v); its log ends with:\n%s", err, tail(p.log))
		}
		return ""
	})
}

// end is kill -9, and returns when it is gone. What it programmed goes with the node.
func (p *kubeProxy) end() {
	if p.process == nil {
		return
	}
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
	p.process = nil
}
