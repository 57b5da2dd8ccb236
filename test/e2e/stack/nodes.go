// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// nodeMark begins a variable of the environment of containerd, which the shims of a node's containers inherit. They
// outlive containerd.
const nodeMark = "RAVEN_E2E_NODE="

// ErrNodesUp is the error of NodesUp where nodes are up or were not taken down.
var ErrNodesUp = errors.New("nodes are up")

// NodesUp starts the nodes, and returns when each kubelet has registered its node, with the images there. Nodes are
// not ready before a CNI configuration is in their CNIConf. The Service kubernetes gets the API server's address as
// its endpoint, and the control plane's host becomes the gateway of the external network.
func (s *Stack) NodesUp(ctx context.Context, o Options) error {
	if _, err := os.Stat(s.path("n")); err == nil {
		return fmt.Errorf("%w in %s", ErrNodesUp, s.dir)
	}
	if err := os.Mkdir(s.path("n"), 0o755); err != nil {
		return err
	}
	if err := s.keepSettings(); err != nil {
		return err
	}
	b := &builder{Stack: s, Options: o}
	b.OpenVSwitch = s.state.OpenVSwitch
	b.step("external network", nil, func(ctx context.Context) error { return s.externalGateway(ctx) })
	b.step("endpoint of the API server", nil, func(ctx context.Context) error {
		return s.PublishAPIServer(ctx, controlHost)
	})
	for _, n := range s.state.Nodes {
		b.nodeSteps(n, true)
	}
	return runSteps(ctx, b.steps, o.Progress)
}

// Reboot is a reset of a node: nothing is asked to end, and what is on disks alone is there again, which is the
// configuration, the database of Open vSwitch, and what kubelet and containerd keep. It returns as NodesUp does. The
// caller's own processes on the node are the caller's to end and to start.
func (s *Stack) Reboot(ctx context.Context, n Node, o Options) error {
	if err := s.halt(ctx, n, s.Kill); err != nil {
		return err
	}
	for _, volatile := range []string{"state", runOf("/run/containerd")} {
		if err := s.removeFolder(ctx, s.path("n", n.Name, volatile)); err != nil {
			return err
		}
	}
	b := &builder{Stack: s, Options: o}
	b.OpenVSwitch = s.state.OpenVSwitch
	b.nodeSteps(n, false)
	return runSteps(ctx, b.steps, o.Progress)
}

// nodeSteps adds the steps that start a node, one that never ran before or one whose files are there.
func (b *builder) nodeSteps(n Node, first bool) {
	c := b.chassisOf(n)
	start := func(component string, after ...string) {
		name := On(component, n)
		for i := range after {
			after[i] = On(after[i], n)
		}
		b.step(name, after, func(ctx context.Context) error { return b.Start(ctx, name) })
	}
	step := func(name string, do func(context.Context) error, after ...string) {
		for i := range after {
			after[i] = On(after[i], n)
		}
		b.step(On(name, n), after, do)
	}
	step("host", func(ctx context.Context) error { return b.nodeHost(ctx, n) })
	step("database of the switch", func(ctx context.Context) error {
		if !first {
			return nil
		}
		return b.chassisDatabase(ctx, c)
	}, "host")
	start(SwitchDB, "database of the switch")
	step("bridges", func(ctx context.Context) error { return b.bridges(ctx, c) }, SwitchDB)
	start(Vswitchd, "bridges")
	start(OVNController, Vswitchd)
	step("chassis", func(ctx context.Context) error {
		return b.chassisWritten(ctx, c.hostname, On(OVNController, n))
	}, OVNController)
	start(Containerd, "host")
	step("images", func(ctx context.Context) error {
		if !first {
			return nil
		}
		for _, image := range b.state.Tools.Images {
			_, err := b.Run(ctx, filepath.Join(b.state.Tools.Programs, "ctr"), "--address", n.Containerd, "--namespace",
				"k8s.io", "images", "import", image)
			if err != nil {
				return err
			}
		}
		return nil
	}, Containerd)
	start(KubeProxy, "host")
	start(Kubelet, Containerd, "images")
}

// nodeHost makes a node's folders, its control group and its namespaces.
func (b *builder) nodeHost(ctx context.Context, n Node) error {
	at := func(elem ...string) string { return b.path(append([]string{"n", n.Name}, elem...)...) }
	for _, dir := range []string{"ovs", "cni/conf", "cni/bin", "ns"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			return err
		}
	}
	if err := makeCgroups(b.cgroup(n)); err != nil {
		return err
	}
	if err := b.host(ctx, n.Namespace, n.Address, n.Address6); err != nil {
		return err
	}
	if err := b.ip(ctx, [][]string{{"-n", n.Namespace, "route", "add", "default", "via", controlHost}}); err != nil {
		return err
	}
	return b.mountNamespace(ctx, n)
}

// fixedFolders are where kubelets, shims and libcni keep things wherever they are told to, and where two nodes would
// meet. Each node has its own there.
func fixedFolders() []string {
	return []string{"/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd"}
}

// runOf is the node's own folder for one of fixedFolders.
func runOf(folder string) string {
	return filepath.Base(filepath.Dir(folder)) + "-" + filepath.Base(folder)
}

// mountNamespace makes the mount namespace of a node, and its UTS namespace with the node's name as hostname. What is
// mounted in it goes with its last process.
func (b *builder) mountNamespace(ctx context.Context, n Node) error {
	dir := filepath.Dir(n.Mounts)
	var script strings.Builder
	for _, folder := range fixedFolders() {
		own := b.path("n", n.Name, runOf(folder))
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		fmt.Fprintf(&script, "mount --bind '%s' '%s' && ", own, folder)
	}
	fmt.Fprintf(&script, "hostname '%s'", n.Name)
	for _, file := range []string{n.Mounts, n.UTS} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{
		{"mount", "--bind", dir, dir}, {"mount", "--make-private", dir}, // or the file could not hold a namespace
		{"unshare", "--mount=" + n.Mounts, "--uts=" + n.UTS, "sh", "-c", script.String()},
	} {
		if _, err := b.Run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// NodesDown takes the nodes down and removes all that they left: processes, namespaces, control groups, mounts, files,
// their objects in Kubernetes and their chassis. It can be called again, and where none were up.
func (s *Stack) NodesDown(ctx context.Context) error {
	if _, err := os.Stat(s.path("n")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{s.removeNodes(ctx), s.withdrawAPIServer(ctx), s.removeExternalGateway(ctx)}
	for _, n := range s.state.Nodes {
		errs = append(errs, s.remove(ctx, s.state.Endpoints.Kubernetes+"/api/v1/nodes/"+n.Name))
		_, err := s.Run(ctx, "ovn-sbctl", "--timeout=20", "--db="+s.state.Network.OVNSouth, "--if-exists", "chassis-del",
			s.chassisOf(n).id)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.forgetNodes()
}

// removeNodes removes what of nodes is on the machine.
func (s *Stack) removeNodes(ctx context.Context) error {
	if _, err := os.Stat(s.path("n")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, n := range s.state.Nodes {
		if err := s.removeNode(ctx, n); err != nil {
			errs = append(errs, fmt.Errorf("taking down %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// forgetNodes ends what removeNodes began: the machine's settings are what they were.
func (s *Stack) forgetNodes() error {
	if err := s.restoreSettings(); err != nil {
		return err
	}
	return os.RemoveAll(s.path("n"))
}

func (s *Stack) removeNode(ctx context.Context, n Node) error {
	if err := s.halt(ctx, n, func(ctx context.Context, name string) error {
		return s.Stop(ctx, name, stopPatience)
	}); err != nil {
		return err
	}
	return s.removeFolder(ctx, s.path("n", n.Name))
}

// halt ends what runs on a node, each component by a function, and removes its namespaces, mounts and control groups.
func (s *Stack) halt(ctx context.Context, n Node, end func(ctx context.Context, component string) error) error {
	stop := func(names ...string) error {
		for _, name := range names {
			if err := end(ctx, On(name, n)); err != nil {
				return err
			}
		}
		return nil
	}
	// First who starts things, then what was started, then who would notice.
	if err := stop(Kubelet, KubeProxy); err != nil {
		return err
	}
	if err := killCgroup(ctx, s.cgroup(n)); err != nil {
		return err
	}
	if err := stop(Containerd, OVNController, Vswitchd, SwitchDB); err != nil {
		return err
	}
	err := poll(ctx, func() bool {
		shims := s.marked(nodeMark + n.Name)
		for _, p := range shims {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // gone meanwhile: the next look tells
		}
		return len(shims) == 0
	})
	if err != nil {
		return fmt.Errorf("these still run: %s", names(s.marked(nodeMark+n.Name)))
	}
	for _, path := range []string{n.Mounts, n.UTS, filepath.Dir(n.Mounts)} {
		for syscall.Unmount(path, syscall.MNT_DETACH) == nil { // until nothing is mounted there
		}
	}
	// With the namespace alone the links would go some time after it.
	for _, link := range []string{uplink(s.state.Network, n.Namespace), tunnelLink(s.state.Network, n.Namespace)} {
		if err := s.removeLink(ctx, link); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join("/run/netns", n.Namespace)); err == nil {
		if _, err := s.Run(ctx, "ip", "netns", "del", n.Namespace); err != nil {
			return err
		}
	}
	return removeCgroups(ctx, s.cgroup(n))
}

// removeFolder removes a folder in which something may still be mounted that is about to go with its namespace.
func (s *Stack) removeFolder(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var last error
	if err := poll(ctx, func() bool {
		last = os.RemoveAll(dir)
		return last == nil
	}); err != nil {
		return errors.Join(err, last)
	}
	return nil
}
