// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
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
		n.translated = ""
		return errors.Join(n.dropOwn(ctx), masquerade("", nil))
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
	translated := a.setApart(self.Annotations[contract.TranslatedAddresses])
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
	return n.setUpOwn(ctx, view, a, ranges, translated)
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
func (n *Node) setUpOwn(
	ctx context.Context, view *openvswitch.View, a *attachment, ranges []netip.Prefix, translated []netip.Addr,
) error {
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
	err = errors.Join(setUp(n.links.handle, link, a, a.nodeRoutes(ranges)), masquerade(link.Attrs().Name, translated))
	if err != nil {
		return err
	}
	n.translated = join(translated)
	if err := n.publish(ctx, view); err != nil {
		return err
	}
	if i := view.Interfaces[n.config.Interface]; !i.Installed() {
		n.own.Degraded(fmt.Sprintf("waiting for ovn-controller to set external_ids:ovn-installed of %s", n.config.Interface))
		return nil
	}
	n.own.Ready()
	return ctx.Err()
}

// setApart returns the addresses of a node's port for connections whose destination was translated: of each IP version
// that has several the one that was told before, else the highest. They come last in the port's addresses then, so that
// the node's own connections have another source.
func (a *attachment) setApart(told string) []netip.Addr {
	before := strings.Split(told, ",")
	slices.SortFunc(a.Addresses, func(x, y address) int { // Neutron tells them in any order
		wasTold := func(one address) int {
			if slices.Contains(before, one.Prefix.Addr().String()) {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(wasTold(x), wasTold(y)), x.Prefix.Addr().Compare(y.Prefix.Addr()))
	})
	var apart []netip.Addr
	for _, version4 := range []bool{true, false} {
		var of []netip.Addr
		for _, one := range a.Addresses {
			if one.Prefix.Addr().Is4() == version4 {
				of = append(of, one.Prefix.Addr())
			}
		}
		if len(of) > 1 {
			apart = append(apart, of[len(of)-1])
		}
	}
	return apart
}

func join(addresses []netip.Addr) string {
	texts := make([]string, 0, len(addresses))
	for _, one := range addresses {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, ",")
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

// publish writes on the Node which chassis it is, and which addresses translated connections come from.
func (n *Node) publish(ctx context.Context, view *openvswitch.View) error {
	self, there := n.objects.self()
	want := map[string]string{contract.ChassisHostname: view.Chassis.Hostname, contract.ChassisID: view.Chassis.ID}
	if !there || want[contract.ChassisHostname] == "" || want[contract.ChassisID] == "" {
		return nil
	}
	if n.translated != "" {
		want[contract.TranslatedAddresses] = n.translated
	}
	differs := self.Annotations[contract.TranslatedAddresses] != n.translated
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
	n.log.Info("node annotated", "chassis", want[contract.ChassisHostname], "chassis id", want[contract.ChassisID],
		"translated addresses", n.translated)
	return nil
}

func encode(document any) ([]byte, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return text, nil
}
