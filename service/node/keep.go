// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kuryr/raven/service/openvswitch"
)

// keep compares all interfaces with the pods and the Node, whenever one of them has changed and every now and then,
// until the context ends.
func (n *Node) keep(ctx context.Context) error {
	links, unfollow, err := n.followLinks(ctx)
	if err != nil {
		return err
	}
	defer func() { unfollow() }()
	var last *openvswitch.View
	for {
		changed := n.objects.changed.next()
		view, viewChanged, _ := n.ovs.View()
		again := n.report(ctx)
		if !n.pass(ctx) {
			again = min(again, ownRetry)
		}
		last = view
		timer := n.config.Clock.NewTimer(min(n.config.Resync, again))
		for waiting := true; waiting; {
			select {
			case <-changed:
				waiting = false
			case <-viewChanged:
				view, viewChanged, _ = n.ovs.View()
				waiting = !matters(last, view)
				last = view
			case update, open := <-links:
				if waiting = open && update.Link.Attrs().Name != n.config.Interface; !open {
					unfollow()
					if links, unfollow, err = n.followLinks(ctx); err != nil {
						return err
					}
				}
			case <-timer.C():
				waiting = false
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
		}
		timer.Stop()
	}
}

// followLinks returns a channel of what changes in links, and what ends it. It is closed when the kernel has dropped a
// change, because there were many: what was missed is not known then.
func (n *Node) followLinks(ctx context.Context) (<-chan netlink.LinkUpdate, func(), error) {
	updates, ended := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	unfollow := func() {
		close(ended)
		for range updates { // it is closed when the subscription has ended
		}
	}
	err := netlink.LinkSubscribeWithOptions(updates, ended, netlink.LinkSubscribeOptions{
		ErrorCallback: func(err error) {
			if ctx.Err() == nil {
				n.log.Debug("changes of links were missed", "error", err)
			}
		},
	})
	if err != nil {
		return nil, func() {}, fmt.Errorf("following the links: %w", err)
	}
	return updates, unfollow, nil
}

// matters says whether two views of Open vSwitch differ in more than interfaces that an ADD or a DEL works on: its
// rows come and go without a look at all the others.
func matters(before, now *openvswitch.View) bool {
	if before == nil || now == nil {
		return before != now
	}
	if before.Chassis != now.Chassis || before.BridgeUUID != now.BridgeUUID || before.Datapath != now.Datapath {
		return true
	}
	for name, i := range before.Interfaces {
		if _, there := now.Interfaces[name]; !there && i.Raven() {
			return true
		}
	}
	for name, i := range now.Interfaces {
		old := before.Interfaces[name]
		if i.ExternalIDs[openvswitch.Node] != "" && (i.OFPort != old.OFPort || i.Installed() != old.Installed()) {
			return true
		}
	}
	return false
}

// pass is one comparison. What fails is logged, and tried again at the next one.
func (n *Node) pass(ctx context.Context) (ok bool) {
	restored, plugged := n.restore(ctx), n.ownInterface(ctx)
	if ctx.Err() != nil {
		return false
	}
	if restored != nil {
		n.log.Warn("interfaces could not be put right", "error", restored)
	}
	if plugged != nil {
		n.own.Degraded(plugged.Error())
		n.log.Warn("the node's own interface could not be set up", "error", plugged)
	}
	return restored == nil && plugged == nil
}

// interfaceState is what is known of one sandbox's interface.
type interfaceState struct {
	box    sandbox
	pod    string // a hash of the pod's namespace and name
	uid    string // the pod's
	row    *openvswitch.Interface
	linked bool
	marked bool // the link says whose it is
	index  int  // of the link
}

// restore puts right what a crash, a reboot, or a change of a port has left: rows without a link or a pod are removed,
// links without a mark too, rows that are missing or of another port are made.
func (n *Node) restore(ctx context.Context) error {
	view, _, err := n.ovs.View()
	if err != nil || view.BridgeUUID == "" {
		return nil //nolint:nilerr // it is reported, and there is nothing to compare with
	}
	links, err := n.links.ours()
	if err != nil {
		return err
	}
	pods, complete := n.objects.all()
	if _, there := n.objects.self(); there {
		n.named.Store(true)
	}
	// A list of no pods may be that of a node which there is not: [node] node_name is wrong.
	complete = complete && n.named.Load()
	var problems []error
	all := states(view, links)
	// The newest first: of two sandboxes of a pod that have lost their rows it is the one that is used.
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return all[b].index - all[a].index })
	for _, name := range names {
		problems = append(problems, n.putRight(ctx, name, all[name], pods, complete))
	}
	return errors.Join(problems...)
}

// states joins rows and links by name.
func states(view *openvswitch.View, links map[string]hostLink) map[string]*interfaceState {
	all := map[string]*interfaceState{}
	for _, i := range view.Where(func(i openvswitch.Interface) bool { return i.ExternalIDs[openvswitch.Sandbox] != "" }) {
		all[i.Name] = &interfaceState{
			box: sandboxOfRow(i), pod: hash(i.ExternalIDs[openvswitch.Pod]), uid: i.ExternalIDs[openvswitch.PodUID], row: &i,
		}
	}
	for name, m := range links {
		state := all[name]
		if state == nil {
			state = &interfaceState{box: sandbox{m.Sandbox, m.Netns, m.IfName}, pod: m.Pod, uid: m.UID}
			all[name] = state
		}
		state.linked, state.marked, state.index = true, m.Sandbox != "", m.index
	}
	return all
}

// putRight deals with one interface, unless a request works on it.
func (n *Node) putRight(
	ctx context.Context, name string, state *interfaceState, pods []object, complete bool,
) error {
	if state.row == nil && !state.marked {
		return n.removeUnfinished(ctx, name, state.index)
	}
	ctx, done, _ := n.turns.tryTake(ctx, state.box.key())
	if done == nil {
		return nil
	}
	defer done()
	if !n.unchanged(name, state) {
		return nil // a request was faster
	}
	pod, there := podOf(pods, state)
	switch {
	case !state.linked:
		return n.removeRow(ctx, name, "its link is gone")
	case !there && complete && state.row != nil:
		return n.removeRow(ctx, name, "its pod is gone")
	case !there:
		return nil
	}
	a, err := parseAttachment(pod.Annotations)
	view, _, unavailable := n.ovs.View()
	if err != nil || unavailable != nil || a.ownedBy(pod) != nil || a.mayBeOn(view, n.config.Bridge) != nil {
		return nil // what the annotations say cannot be used now: the interface stays as it is
	}
	for other, i := range view.Interfaces {
		if other != name && i.Raven() && i.ExternalIDs[openvswitch.IfaceID] == a.Port {
			return nil // a newer sandbox of the pod has the port; when it lets it go this is looked at again
		}
	}
	return n.replug(ctx, name, state, pod, a)
}

// replug gives an interface the port that its pod has now. The row is written last: by it the next comparison sees
// whether all was done.
func (n *Node) replug(ctx context.Context, name string, state *interfaceState, pod object, a *attachment) error {
	ids := map[string]string{}
	if state.row != nil {
		ids = state.row.ExternalIDs
	}
	if ids[openvswitch.IfaceID] == a.Port && ids[openvswitch.AttachedMAC] == a.MAC.String() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := n.awaitOwner(ctx, a); err != nil {
		return err
	}
	done := "row made again"
	if state.row != nil {
		done = "port changed"
	}
	switch {
	case state.box.Netns != "":
		if err := n.links.configure(state.box.Netns, state.box.IfName, a); err != nil {
			return err
		}
	case state.row != nil:
		return fmt.Errorf("%s of pod %s/%s cannot be given port %s: its network namespace is not known; delete the pod", name,
			pod.Namespace, pod.Name, a.Port)
	}
	ref := podRef{pod.Namespace, pod.Name, state.uid}
	if _, err := n.ovs.Plug(ctx, row(state.box, ref, a), openvswitch.KeepOthers); err != nil {
		var taken *openvswitch.TakenError
		if errors.As(err, &taken) {
			return nil // a newer sandbox of the pod has just got it
		}
		return err
	}
	n.metrics.restored.WithLabelValues(done).Inc()
	n.log.Info("interface put right", "done", done, "link", name, "pod", ref.String(), "port", a.Port)
	return nil
}

// unchanged says whether an interface is still as it was when the comparison began.
func (n *Node) unchanged(name string, state *interfaceState) bool {
	view, _, err := n.ovs.View()
	if err != nil {
		return false
	}
	i, there := view.Interfaces[name]
	linked, err := n.links.exists(name)
	return err == nil && linked == state.linked && there == (state.row != nil) && (!there || i.UUID == state.row.UUID)
}

func (n *Node) removeRow(ctx context.Context, name, why string) error {
	gone, err := n.ovs.Unplug(ctx, func(i openvswitch.Interface) bool { return i.Name == name })
	for _, i := range gone {
		n.metrics.restored.WithLabelValues("row removed").Inc()
		n.log.Info("interface removed from Open vSwitch", "link", name, "why", why, "pod", i.ExternalIDs[openvswitch.Pod])
	}
	return err
}

// removeUnfinished removes a link whose making was cut off before it was marked.
func (n *Node) removeUnfinished(ctx context.Context, name string, index int) error {
	timer := n.config.Clock.NewTimer(unfinishedPause)
	defer timer.Stop()
	select {
	case <-timer.C(): // an ADD that makes it right now marks it in that time
	case <-ctx.Done():
		return nil
	}
	removed, err := n.links.removeUnmarked(name, index)
	if removed {
		n.metrics.restored.WithLabelValues("link removed").Inc()
		n.log.Info("unfinished link removed", "link", name)
	}
	return err
}

const (
	unfinishedPause = time.Second
	// keepTimeout bounds what is done about one interface outside of a request: others wait for it.
	keepTimeout = 5 * time.Second
)

// podOf returns the pod of an interface. Its name must be right as well as its UID: whoever makes pods may call one the
// mirror of another one's UID.
func podOf(pods []object, state *interfaceState) (object, bool) {
	for _, pod := range pods {
		name := podRef{Namespace: pod.Namespace, Name: pod.Name}
		if state.uid != "" && pod.hasUID(state.uid) && hash(name.String()) == state.pod {
			return pod, true
		}
	}
	return object{}, false
}
