// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/openvswitch"
)

// del takes a sandbox's interface away, and nothing else. It asks the API server for nothing, and that there is nothing
// to take away is no error. An ADD of the same sandbox that is under way ends.
func (n *Node) del(ctx context.Context, r cniapi.Request) error {
	box, err := sandboxOf(r, false)
	if err != nil {
		return err
	}
	ctx, done, err := n.turns.take(ctx, box.key(), true)
	if err != nil {
		return err
	}
	defer done()
	if err := n.unplug(ctx, box); err != nil {
		return err
	}
	n.log.Info("sandbox unplugged", "sandbox", box.ID, "link", box.link())
	return nil
}

// unplug removes row and links of a sandbox's interface. The row goes first: what has no row binds no port.
func (n *Node) unplug(ctx context.Context, box sandbox) error {
	_, err := n.ovs.Unplug(ctx, func(i openvswitch.Interface) bool {
		return i.ExternalIDs[openvswitch.Sandbox] == box.ID && i.ExternalIDs[openvswitch.IfName] == box.IfName
	})
	return errors.Join(err, n.links.remove(box.link()))
}

// gc removes what belongs to sandboxes that the runtime does not know any more.
func (n *Node) gc(ctx context.Context, r cniapi.Request) error {
	conf, err := parseConf(r.Config)
	if err != nil {
		return err
	}
	if conf.ValidAttachments == nil {
		return failure(types.ErrInvalidNetworkConfig,
			"GC has no cni.dev/valid-attachments: nothing is removed where that is not said")
	}
	valid := map[string]bool{}
	for _, one := range conf.ValidAttachments {
		valid[hostName(one.ContainerID, one.IfName)] = true
	}
	view, err := n.view(ctx)
	if err != nil {
		return err
	}
	links, err := n.links.ours()
	if err != nil {
		return err
	}
	var problems []error
	for name, state := range states(view, links) {
		if !valid[name] && state.box.ID != "" {
			problems = append(problems, n.collect(ctx, name, state))
		}
	}
	return errors.Join(problems...)
}

// collect removes one interface that GC does not want, unless a request makes it anew right now.
func (n *Node) collect(ctx context.Context, name string, state *interfaceState) error {
	waiting, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_, done, err := n.turns.take(waiting, state.box.key(), false)
	if err != nil {
		return ctx.Err() // the request is still at it, so that the runtime knows the sandbox
	}
	defer done()
	view, err := n.view(ctx)
	if err != nil {
		return err
	}
	if now := view.Interfaces[name].UUID; now != "" && (state.row == nil || state.row.UUID != now) {
		return nil // a request has just made it
	}
	n.log.Info("garbage collection of a sandbox that the runtime does not know", "sandbox", state.box.ID, "link", name)
	return n.unplug(ctx, state.box)
}

// view waits for Open vSwitch's database, which a daemon that has just started is not connected to yet.
func (n *Node) view(ctx context.Context) (*openvswitch.View, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return n.ovs.Until(ctx, func(*openvswitch.View) error { return nil })
}

func sandboxOfRow(i openvswitch.Interface) sandbox {
	ids := i.ExternalIDs
	return sandbox{ids[openvswitch.Sandbox], ids[openvswitch.Netns], ids[openvswitch.IfName]}
}

// check compares what an ADD has returned with what is there.
func (n *Node) check(ctx context.Context, r cniapi.Request) error {
	box, err := sandboxOf(r, true)
	if err != nil {
		return err
	}
	conf, err := parseConf(r.Config)
	if err != nil {
		return err
	}
	previous, err := conf.previous()
	if err != nil {
		return err
	}
	view, err := n.view(ctx)
	if err != nil {
		return err
	}
	i, there := view.Interfaces[box.link()]
	if !there || i.ExternalIDs[openvswitch.Sandbox] != box.ID {
		return failure(codeChanged, "Open vSwitch has no interface of sandbox %s in bridge %s", box.ID, n.config.Bridge)
	}
	if there, err := n.links.exists(box.link()); err != nil || !there {
		return errors.Join(err, failure(codeChanged, "there is no link %s", box.link()))
	}
	if err := n.links.inspect(box.Netns, box.IfName, expected(previous, box.IfName)); err != nil {
		var ns *netnsError
		if errors.As(err, &ns) {
			return err
		}
		return failure(codeChanged, "%v", err)
	}
	if !i.Installed() {
		return failure(codeChanged, "OVN has not installed the flows of interface %s (port %s): %s", i.Name,
			i.ExternalIDs[openvswitch.IfaceID], i.Error)
	}
	return n.checkPort(r, i)
}

// checkPort compares the row with the annotations, where these are known.
func (n *Node) checkPort(r cniapi.Request, i openvswitch.Interface) error {
	ref, err := parsePod(r.Args)
	if err != nil {
		return err
	}
	pod, there := n.objects.pod(ref.Namespace, ref.Name)
	if !there || ref.UID != "" && !pod.hasUID(ref.UID) {
		return nil
	}
	a, err := parseAttachment(pod.Annotations)
	if err != nil || a.ownedBy(pod) != nil {
		return nil //nolint:nilerr // what the annotations say is not known: the row stays as it is, too
	}
	if id := i.ExternalIDs[openvswitch.IfaceID]; id != a.Port {
		return failure(codeChanged, "interface %s is of port %s, and the pod's port is %s", i.Name, id, a.Port)
	}
	return nil
}

// status says whether an ADD could succeed.
func (n *Node) status() error {
	if err := n.unready(); err != nil {
		return failure(codeNotAvailable, "%v", err)
	}
	return nil
}

// unready says why no pod can be plugged in; nil: one can.
func (n *Node) unready() error {
	view, _, err := n.ovs.View()
	if err != nil {
		return err
	}
	return n.lacks(view)
}

// lacks says why no pod can be plugged in, with Open vSwitch in a state; nil: one can.
func (n *Node) lacks(view *openvswitch.View) error {
	switch {
	case view.BridgeUUID == "":
		return fmt.Errorf("there is no bridge %s in Open vSwitch: does ovn-controller run?", n.config.Bridge)
	case view.Chassis.ID == "":
		return errors.New("external_ids of Open vSwitch have no system-id: this machine is no chassis")
	}
	if err := n.objects.notSynced(podWatch); err != nil {
		return fmt.Errorf("waiting for %w", err)
	}
	return nil
}
