// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"io"
	"path/filepath"
)

// NodeTools are programs and images that real nodes are made of.
type NodeTools struct {
	Programs string   `json:"programs"` // the folder of containerd, its shim, ctr and CNI plugins
	Kubelet  string   `json:"kubelet"`  // the folder of kubelet, kubectl and agnhost
	Runc     string   `json:"runc"`     // the program runc
	Images   []string `json:"images"`   // container images, as archives
}

// Nodes gives them. modules is the folder of the modules kubernetes and node, which pin what is built. All of it is
// kept in cache: containerd, CNI plugins, CoreDNS and Kubernetes' programs by their modules, Debian's packages by
// their names, images by what they are made of.
func Nodes(ctx context.Context, modules, cache string, progress io.Writer) (NodeTools, error) {
	var tools NodeTools
	var err error
	if tools.Programs, err = (goPrograms{
		prefix: "e2e-node-", source: filepath.Join(modules, "node"), what: "containerd, CNI plugins and CoreDNS",
		tags: "no_btrfs,no_devmapper,no_zfs,no_aufs",
		packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/ctr",
			"github.com/containernetworking/plugins/plugins/main/bridge",
			"github.com/containernetworking/plugins/plugins/main/loopback",
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
			"github.com/containernetworking/plugins/plugins/meta/bandwidth",
			"github.com/containernetworking/plugins/plugins/meta/portmap",
			"github.com/containernetworking/plugins/plugins/meta/tuning", "./coredns", "./pause",
		},
	}).build(ctx, cache, progress); err != nil {
		return tools, err
	}
	if tools.Kubelet, err = (goPrograms{
		prefix: "e2e-kubelet-", source: filepath.Join(modules, "kubernetes"), what: "kubelet, kubectl and agnhost",
		packages: []string{
			"k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes/test/images/agnhost",
		},
	}).build(ctx, cache, progress); err != nil {
		return tools, err
	}
	runtime, err := unpacked(ctx, cache, "e2e-runc-", bookworm, []string{"runc", "busybox-static"}, progress)
	if err != nil {
		return tools, err
	}
	tools.Runc = filepath.Join(runtime, "usr", "sbin", "runc")
	userland, err := unpacked(ctx, cache, "e2e-userland-", bookworm, []string{
		"base-files", "base-passwd", "dash", "bash", "coreutils", "curl", "ca-certificates", "bind9-dnsutils",
		"netcat-openbsd", "iproute2", "iperf", "util-linux", "hostname", "libc-bin", "grep", "sed", "findutils", "mawk",
		"procps", "wget", "iputils-ping",
	}, progress)
	if err != nil {
		return tools, err
	}
	tools.Images, err = images(ctx, cache, imageParts{
		programs: tools.Programs, kubernetes: tools.Kubelet, userland: userland,
		busybox: filepath.Join(runtime, "bin", "busybox"), modules: modules,
	}, progress)
	return tools, err
}

// E2ETest gives the folder with e2e.test, upstream's tests of a cluster. Built, it takes three minutes more than what
// Nodes builds (measured).
func E2ETest(ctx context.Context, modules, cache string, progress io.Writer) (string, error) {
	return goPrograms{
		prefix: "e2e-upstream-", source: filepath.Join(modules, "kubernetes"), what: "upstream's e2e.test", test: "e2e.test",
		packages: []string{"k8s.io/kubernetes/test/e2e"},
	}.build(ctx, cache, progress)
}

// Cyclonus gives the folder with cyclonus, which runs the cases of NetworkPolicies that the project of this name
// generates.
func Cyclonus(ctx context.Context, modules, cache string, progress io.Writer) (string, error) {
	return goPrograms{
		prefix: "cyclonus-", source: filepath.Join(modules, "cyclonus"), what: "cyclonus", packages: []string{"."},
	}.build(ctx, cache, progress)
}

// Helm gives the folder with helm, of the version that the tests of the chart in the folder test render with.
func Helm(ctx context.Context, test, cache string, progress io.Writer) (string, error) {
	return goPrograms{
		prefix: "helm-", source: filepath.Join(test, "charts"), what: "helm", packages: []string{"helm.sh/helm/v4/cmd/helm"},
	}.build(ctx, cache, progress)
}
