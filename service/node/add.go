// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/openvswitch"
	"github.com/kuryr/raven/service/ovn/southbound"
)

const (
	// cleanupTimeout bounds what an ADD that has failed takes away again.
	cleanupTimeout = 10 * time.Second
	// eventTimeout bounds the look at a pod's Events, for an error.
	eventTimeout = 2 * time.Second
	// The time between two questions for a port that OVN's southbound database does not have yet.
	firstOwnerPause, lastOwnerPause = 20 * time.Millisecond, time.Second
)

// waitError says what is waited for.
type waitError struct{ what error }

func (w *waitError) Error() string { return "waiting for " + w.what.Error() }
func (w *waitError) Unwrap() error { return w.what }

// unseenError says that the watch does not show a pod: not yet, or not any more.
type unseenError struct{ text string }

func (u *unseenError) Error() string { return u.text }

// add plugs a pod into its port.
func (n *Node) add(ctx context.Context, r cniapi.Request) (_ *types100.Result, err error) {
	box, err := sandboxOf(r, true)
	if err != nil {
		return nil, err
	}
	ref, err := parsePod(r.Args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.config.AddTimeout, &timeoutError{n.config.AddTimeout})
	defer cancel()
	ctx, done, err := n.turns.take(ctx, box.key(), false)
	if err != nil {
		return nil, err
	}
	defer done()
	watch := n.metrics.start(n.config.Clock)
	a, err := n.awaitPort(ctx, ref)
	if err != nil {
		return nil, err
	}
	watch.phase(phaseAnnotation)
	if ref.UID == "" { // an old runtime
		ref.UID = a.DeviceID
	}
	ctx, ended := n.follow(ctx, ref, a.Port)
	defer ended()
	if err := n.awaitOwner(ctx, a); err != nil {
		return nil, err
	}
	watch.phase(phaseOwner)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.undo(context.WithoutCancel(ctx), box))
		}
	}()
	if err := n.plug(ctx, box, ref, a, watch); err != nil {
		return nil, err
	}
	watch.end()
	n.log.Info("pod plugged in", append([]any{
		"pod", ref.String(), "port", a.Port, "sandbox", box.ID, "link", box.link(),
	}, watch.took...)...)
	return result(box, a), nil
}

// plug makes links and row, and waits for OVN.
func (n *Node) plug(ctx context.Context, box sandbox, ref podRef, a *attachment, watch *stopwatch) error {
	view, _, err := n.ovs.View()
	if err != nil {
		return err
	}
	err = n.links.create(pair{
		Host: box.link(), Mark: mark{box.ID, box.IfName, hash(ref.String()), ref.UID, box.Netns}, Netns: box.Netns,
		IfName: box.IfName, MAC: a.MAC, MTU: a.MTU, Offload: !view.Userspace(),
	})
	if err != nil {
		return err
	}
	watch.phase(phaseLink)
	if _, err := n.ovs.Plug(ctx, row(box, ref, a), openvswitch.ReplaceOthers); err != nil {
		return err
	}
	watch.phase(phaseRow)
	if err := n.links.configure(box.Netns, box.IfName, a); err != nil {
		return err
	}
	watch.phase(phaseSandbox)
	if err := n.awaitInstalled(ctx, box.link(), a.Port); err != nil {
		return err
	}
	watch.phase(phaseInstalled)
	return nil
}

// row is the Interface of a sandbox.
func row(box sandbox, ref podRef, a *attachment) openvswitch.Interface {
	return openvswitch.Interface{Name: box.link(), ExternalIDs: map[string]string{
		openvswitch.IfaceID: a.Port, openvswitch.AttachedMAC: a.MAC.String(),
		openvswitch.Sandbox: box.ID, openvswitch.IfName: box.IfName, openvswitch.Netns: box.Netns,
		openvswitch.Pod: ref.String(), openvswitch.PodUID: ref.UID,
	}}
}

// follow returns a context that also ends when the pod is gone, or has another port than this one: what is waited for
// never comes then. The second result ends the following.
func (n *Node) follow(ctx context.Context, ref podRef, port string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			changed := n.objects.changed.next()
			if err := n.objects.moved(ref, port); err != nil {
				cancel(err)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		following.Wait()
	}
}

// undo takes away what an ADD has made, as a DEL would.
func (n *Node) undo(ctx context.Context, box sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return n.unplug(ctx, box)
}

// timeoutError says that add_timeout is over.
type timeoutError struct{ after time.Duration }

func (t *timeoutError) Error() string { return fmt.Sprintf("add_timeout (%s) is over", t.after) }
func (t *timeoutError) Is(target error) bool {
	return target == context.DeadlineExceeded
}

// askAgain is how often the API server is asked for a pod that the watch does not show: it may have come and gone in
// between, and the watch may be behind.
const askAgain = 2 * time.Second

// awaitPort waits until the API server shows the port of the right pod, and Open vSwitch a bridge to plug it into.
func (n *Node) awaitPort(ctx context.Context, ref podRef) (*attachment, error) {
	for asked := (time.Time{}); ; {
		changed := n.objects.changed.next()
		view, viewChanged, err := n.ovs.View()
		var a *attachment
		if err == nil {
			a, err = n.port(ref, view)
		}
		var waits *waitError
		var unavailable *openvswitch.UnavailableError
		switch {
		case err == nil:
			return a, nil
		case !errors.As(err, &waits) && !errors.As(err, &unavailable):
			return nil, err
		}
		var unseen *unseenError
		if !errors.As(err, &unseen) {
			asked = time.Time{}
		} else if n.config.Clock.Since(asked) >= askAgain {
			asked = n.config.Clock.Now()
			if n.objects.isGone(ctx, ref) {
				return nil, failure(types.ErrTryAgainLater, "pod %s with UID %s is not on node %s any more, says the API server",
					ref, ref.UID, n.config.Name)
			}
		}
		again := n.config.Clock.NewTimer(askAgain)
		select {
		case <-changed:
		case <-viewChanged:
		case <-again.C():
		case <-ctx.Done():
			again.Stop()
			return nil, n.overdue(ctx, ref, err)
		}
		again.Stop()
	}
}

// overdue says what an ADD has waited for in vain, and what Raven says of that.
func (n *Node) overdue(ctx context.Context, ref podRef, waited error) error {
	why := context.Cause(ctx)
	text := fmt.Sprintf("pod %s: %v (%v)", ref, waited, why)
	var missing *missingError
	if errors.Is(why, context.DeadlineExceeded) && errors.As(waited, &missing) {
		if pod, there := n.objects.pod(ref.Namespace, ref.Name); there {
			if said := n.objects.lastEvent(context.WithoutCancel(ctx), ref.Namespace, pod.UID); said != "" {
				text += "; Raven says: " + said
			} else {
				text += "; see the Events of the pod, or `raven status`"
			}
		}
	}
	return types.NewError(types.ErrTryAgainLater, text, "")
}

// port returns what a pod is to be plugged in with. The error is a *waitError for what may come to be.
func (n *Node) port(ref podRef, view *openvswitch.View) (*attachment, error) {
	pod, there := n.objects.pod(ref.Namespace, ref.Name)
	if !there {
		if err := n.objects.notSynced(podWatch); err != nil {
			return nil, &waitError{err}
		}
		return nil, &waitError{&unseenError{fmt.Sprintf("the API server to show the pod on node %s", n.config.Name)}}
	}
	if ref.UID != "" && !pod.hasUID(ref.UID) {
		return nil, &waitError{&unseenError{fmt.Sprintf("the API server to show the pod with UID %s: it shows one with %s",
			ref.UID, pod.UID)}}
	}
	a, err := parseAttachment(pod.Annotations)
	var unknown *versionError
	switch {
	case errors.As(err, &unknown):
		return nil, types.NewError(codeRefused, fmt.Sprintf("pod %s: %v", ref, err), "")
	case err != nil:
		return nil, &waitError{err} // Raven puts right what others have written there
	}
	if err := a.ownedBy(pod); err != nil {
		return nil, &waitError{err}
	}
	if err := a.mayBeOn(view, n.config.Bridge); err != nil {
		return nil, &waitError{err}
	}
	return a, nil
}

// ownedBy says why the port is not an object's: an annotation that was copied from another one.
func (a *attachment) ownedBy(o object) error {
	if a.DeviceID == o.UID {
		return nil
	}
	return fmt.Errorf("annotation %s to name a port of this object: the device_id of port %s is %q, not %s", contract.Port,
		a.Port, short(a.DeviceID), o.UID)
}

// mayBeOn says why the port cannot be plugged in on this machine now.
func (a *attachment) mayBeOn(view *openvswitch.View, bridge string) error {
	switch {
	case view.BridgeUUID == "":
		return fmt.Errorf("bridge %s of Open vSwitch, which ovn-controller makes", bridge)
	case a.HostID != "" && view.Chassis.Hostname != "" && a.HostID != view.Chassis.Hostname:
		return fmt.Errorf("port %s to be bound to this chassis: its binding:host_id is %s, and external_ids:hostname of "+
			"Open vSwitch %s", a.Port, short(a.HostID), view.Chassis.Hostname)
	}
	return nil
}

// awaitOwner asks OVN's southbound database whether the port is the pod's.
func (n *Node) awaitOwner(ctx context.Context, a *attachment) error {
	if n.config.SouthboundCheck == checkNever {
		return nil
	}
	pause := firstOwnerPause
	for {
		binding, err := n.south.binding(ctx, n.ovs, a.Port)
		var unavailable *southbound.UnavailableError
		switch {
		case err == nil && binding.DeviceID == a.DeviceID:
			n.southboundAnswers()
			return nil
		case err == nil && binding.DeviceID == "": // it was taken from a pool, and that is not written yet
			if n.config.SouthboundCheck != checkAlways {
				return nil
			}
			err = errors.New("it has no neutron:device_id yet")
		case err == nil:
			return types.NewError(codeRefused, fmt.Sprintf("annotation %s names port %s, whose %s in OVN's southbound "+
				"database is %q, not %s: another client than Raven has written it", contract.Port, a.Port, "neutron:device_id",
				short(binding.DeviceID), a.DeviceID), "")
		case errors.As(err, &unavailable) && n.config.SouthboundCheck == checkReachable && ctx.Err() == nil:
			n.southboundUnavailable(err)
			return nil
		}
		timer := n.config.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return failure(types.ErrTryAgainLater, "waiting for port %s in OVN's southbound database: %v (%v)", a.Port, err,
				context.Cause(ctx))
		}
		pause = min(2*pause, lastOwnerPause)
	}
}

// awaitInstalled waits until OVN has the flows of a port in place.
func (n *Node) awaitInstalled(ctx context.Context, link, port string) error {
	_, err := n.ovs.Until(ctx, func(v *openvswitch.View) error {
		switch i := v.Interfaces[link]; {
		case i.UUID == "" || i.ExternalIDs[openvswitch.IfaceID] != port:
			return &openvswitch.FatalError{Err: failure(types.ErrTryAgainLater,
				"interface %s was taken out of Open vSwitch by another process while it was plugged in", link)}
		case i.Installed():
			return nil
		case i.Error != "":
			return fmt.Errorf("waiting for Open vSwitch to take interface %s: %s", link, i.Error)
		case i.OFPort == 0:
			return fmt.Errorf("waiting for ovs-vswitchd to take interface %s, and for ovn-controller to set "+
				"external_ids:ovn-installed of it", link)
		default:
			return fmt.Errorf("waiting for ovn-controller to set external_ids:ovn-installed of interface %s", link)
		}
	})
	var moved *movedError
	if err == nil || ctx.Err() == nil || errors.As(err, &moved) {
		return err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	hint := ""
	if binding, failed := n.south.binding(asking, n.ovs, port); failed == nil && binding.Chassis == "" {
		hint = "; no chassis has bound the port: does ovn-controller run, and is it connected to ovn-remote?"
	} else if failed == nil {
		hint = "; a chassis has bound the port: is it this one?"
	}
	return types.NewError(types.ErrTryAgainLater, err.Error()+hint, "")
}

// result is what the runtime and the plugins that follow are told.
func result(box sandbox, a *attachment) *types100.Result {
	inside := 1
	r := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: box.link(), Mtu: a.MTU},
			{Name: box.IfName, Mac: a.MAC.String(), Mtu: a.MTU, Sandbox: box.Netns},
		},
		DNS: types.DNS{Nameservers: a.DNS},
	}
	for _, one := range a.Addresses {
		ip := &types100.IPConfig{Interface: &inside, Address: *netOf(one.Prefix)}
		if one.Gateway.IsValid() {
			ip.Gateway = net.IP(one.Gateway.AsSlice())
		}
		r.IPs = append(r.IPs, ip)
	}
	for _, one := range a.routes() {
		route := &types.Route{Dst: *netOf(one.Destination)}
		if one.Gateway.IsValid() {
			route.GW = net.IP(one.Gateway.AsSlice())
		}
		r.Routes = append(r.Routes, route)
	}
	return r
}
