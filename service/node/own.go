// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/openvswitch"
)

// ownInterface plugs the node itself into its port: an internal interface of the integration bridge, with routes to the
// pods' ranges. Where the Node names no port nothing is done, nor undone: nothing is known then.
func (n *Node) ownInterface(ctx context.Context) error {
	self, there := n.objects.self()
	switch {
	case n.config.Interface == "":
		n.own.ReadyAs("not wanted: [node] interface is empty")
		return errors.Join(n.dropOwn(ctx), masquerade(""))
	case !there:
		n.own.NotReady("waiting for the Node object " + n.config.Name)
		return nil
	case self.Annotations[contract.Port] == "":
		n.own.ReadyAs("none: the Node has no port, which Raven's driver node makes")
		return nil
	}
	view, _, err := n.ovs.View()
	if err != nil {
		n.own.NotReady(err.Error())
		return nil // it is reported, and its coming is heard
	}
	a, err := parseAttachment(self.Annotations)
	if err != nil {
		return fmt.Errorf("the Node's port: %w", err)
	}
	ranges, err := parseRanges(self.Annotations)
	if err != nil {
		return err
	}
	if err := errors.Join(a.ownedBy(self), a.mayBeOn(view, n.config.Bridge)); err != nil {
		return fmt.Errorf("waiting for %w", err)
	}
	if err := errors.Join(n.plugOwn(ctx, view, a), n.dropOwn(ctx)); err != nil {
		return err
	}
	return n.setUpOwn(ctx, view, a, ranges)
}

// plugOwn sees to the row of the node's own interface.
func (n *Node) plugOwn(ctx context.Context, view *openvswitch.View, a *attachment) error {
	want := openvswitch.Interface{
		Name: n.config.Interface, Type: "internal", MAC: a.MAC.String(), MTU: a.MTU,
		ExternalIDs: map[string]string{
			openvswitch.IfaceID: a.Port, openvswitch.AttachedMAC: a.MAC.String(), openvswitch.Node: n.config.Name,
		},
	}
	have := view.Interfaces[want.Name]
	if have.Type == want.Type && have.MAC == want.MAC && have.MTU == want.MTU &&
		have.ExternalIDs[openvswitch.IfaceID] == a.Port && have.ExternalIDs[openvswitch.Node] == n.config.Name {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := n.awaitOwner(ctx, a); err != nil {
		return err
	}
	if _, err := n.ovs.Plug(ctx, want, openvswitch.ReplaceOthers); err != nil {
		return err
	}
	n.log.Info("node plugged in", "interface", want.Name, "port", a.Port)
	return nil
}

// dropOwn takes interfaces of the node out of Open vSwitch that are not called as the configuration has it (any more).
func (n *Node) dropOwn(ctx context.Context) error {
	dropped := func(i openvswitch.Interface) bool {
		return i.ExternalIDs[openvswitch.Node] != "" && i.Name != n.config.Interface
	}
	view, _, err := n.ovs.View()
	if err != nil || len(view.Where(dropped)) == 0 {
		return nil // it is reported, and its coming is heard
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	gone, err := n.ovs.Unplug(ctx, dropped)
	for _, i := range gone {
		n.log.Info("node unplugged", "interface", i.Name, "port", i.ExternalIDs[openvswitch.IfaceID])
	}
	return err
}

// setUpOwn gives the node's own interface its addresses and routes, once Open vSwitch has made the link.
func (n *Node) setUpOwn(ctx context.Context, view *openvswitch.View, a *attachment, ranges []netip.Prefix) error {
	link, err := n.links.handle.LinkByName(n.config.Interface)
	if isGone(err) {
		n.own.NotReady(fmt.Sprintf("waiting for Open vSwitch to make %s: %s", n.config.Interface,
			view.Interfaces[n.config.Interface].Error))
		return nil // its coming is heard
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", n.config.Interface, err)
	}
	if view.Userspace() {
		if err := noOffload(n.config.Interface); err != nil {
			return err
		}
	}
	if a.hasIPv6() {
		if err := enableIPv6(n.config.Interface); err != nil {
			return err
		}
	}
	err = errors.Join(setUp(n.links.handle, link, a, a.nodeRoutes(ranges)), masquerade(link.Attrs().Name))
	if err != nil {
		return err
	}
	if i := view.Interfaces[n.config.Interface]; !i.Installed() {
		n.own.Degraded(fmt.Sprintf("waiting for ovn-controller to set external_ids:ovn-installed of %s", n.config.Interface))
		return nil
	}
	n.own.Ready()
	return ctx.Err()
}

// nodeRoutes are the routes of a node: to the pods' ranges by the gateway of its own subnet, from its own address.
func (a *attachment) nodeRoutes(ranges []netip.Prefix) []route {
	var routes []route
	for _, to := range ranges {
		for _, one := range a.Addresses {
			if one.Gateway.IsValid() && one.Gateway.Is4() == to.Addr().Is4() {
				routes = append(routes, route{Destination: to, Gateway: one.Gateway, Source: one.Prefix.Addr()})
				break
			}
		}
	}
	return routes
}

// published is what was written on a Node and is not seen there yet.
type published struct {
	uid         string
	annotations map[string]string
	at          time.Time
}

// publish writes on the Node which chassis it is.
func (n *Node) publish(ctx context.Context, view *openvswitch.View) error {
	self, there := n.objects.self()
	want := map[string]string{contract.ChassisHostname: view.Chassis.Hostname, contract.ChassisID: view.Chassis.ID}
	if !there || want[contract.ChassisHostname] == "" || want[contract.ChassisID] == "" {
		return nil
	}
	differs := false
	for key, value := range want {
		differs = differs || self.Annotations[key] != value
	}
	if !differs {
		n.published = published{}
		return nil
	}
	if n.published.uid == self.UID && maps.Equal(n.published.annotations, want) &&
		n.config.Clock.Since(n.published.at) < n.config.Resync {
		return nil // it is written, and the watch has yet to show it
	}
	if err := n.objects.annotate(ctx, self, want); err != nil {
		return err
	}
	n.published = published{self.UID, want, n.config.Clock.Now()}
	n.log.Info("node annotated", "chassis", want[contract.ChassisHostname], "chassis id", want[contract.ChassisID])
	return nil
}

func encode(document any) ([]byte, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return text, nil
}
