// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// expectation is what an ADD has said of an interface in a sandbox.
type expectation struct {
	MAC       string // empty: any
	Addresses []netip.Prefix
	Routes    []route // those of the main table
}

// expected reads what a result says of an interface in a sandbox.
func expected(r *types100.Result, ifName string) expectation {
	var e expectation
	for index, i := range r.Interfaces {
		if i.Name != ifName || i.Sandbox == "" {
			continue
		}
		e.MAC = i.Mac
		for _, ip := range r.IPs {
			if prefix, known := prefixOf(&ip.Address); known && ip.Interface != nil && *ip.Interface == index {
				e.Addresses = append(e.Addresses, prefix)
			}
		}
	}
	for _, one := range r.Routes {
		prefix, known := prefixOf(&one.Dst)
		if !known || one.Table != nil {
			continue // a plugin after this one has put it into another table
		}
		gateway, _ := netip.AddrFromSlice(one.GW) // none is not valid
		e.Routes = append(e.Routes, route{Destination: prefix, Gateway: gateway.Unmap()})
	}
	return e
}

// inspect says what differs between a sandbox's interface and what it was given.
func (l *links) inspect(path, ifName string, want expectation) error {
	ns, err := openNetns(path)
	if err != nil {
		return err
	}
	defer closeNetns(ns)
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink socket in %s: %w", path, err)
	}
	defer handle.Close()
	link, err := handle.LinkByName(ifName)
	if err != nil {
		return fmt.Errorf("%s has no interface %s: %w", path, ifName, err)
	}
	if attrs := link.Attrs(); attrs.Flags&net.FlagUp == 0 {
		return fmt.Errorf("interface %s of %s is down", ifName, path)
	} else if want.MAC != "" && !strings.EqualFold(attrs.HardwareAddr.String(), want.MAC) {
		return fmt.Errorf("interface %s of %s has the MAC address %s, not %s", ifName, path, attrs.HardwareAddr, want.MAC)
	}
	if err := inspectAddresses(handle, link, want.Addresses); err != nil {
		return fmt.Errorf("interface %s of %s: %w", ifName, path, err)
	}
	if err := inspectRoutes(handle, want.Routes); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func inspectAddresses(handle *netlink.Handle, link netlink.Link, want []netip.Prefix) error {
	have, err := readAddresses(handle, link)
	if err != nil {
		return err
	}
	there := map[netip.Prefix]bool{}
	for _, one := range have {
		if prefix, known := prefixOf(one.IPNet); known {
			there[prefix] = true
		}
	}
	for _, one := range want {
		if !there[one] {
			return fmt.Errorf("it has not the address %s", one)
		}
	}
	return nil
}

// inspectRoutes looks for routes on all links of a sandbox: the result names those of later plugins, too. Without a
// gateway the destination counts.
func inspectRoutes(handle *netlink.Handle, want []route) error {
	have, err := readRoutes(handle, nil)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, one := range have {
		there[destinationOf(one)] = true
		if gateway, known := netip.AddrFromSlice(one.Gw); known {
			there[destinationOf(one)+" by "+gateway.Unmap().String()] = true
		}
	}
	for _, one := range want {
		text := one.Destination.String()
		if one.Gateway.IsValid() {
			text += " by " + one.Gateway.String()
		}
		if !there[text] {
			return fmt.Errorf("there is no route to %s", text)
		}
	}
	return nil
}

// readAddresses lists all addresses of a link.
func readAddresses(handle *netlink.Handle, link netlink.Link) ([]netlink.Addr, error) {
	all, err := dump(func() ([]netlink.Addr, error) { return handle.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of %s: %w", link.Attrs().Name, err)
	}
	return all, nil
}

// readRoutes lists all routes of a link in the main table; of all links, where it is nil.
func readRoutes(handle *netlink.Handle, link netlink.Link) ([]netlink.Route, error) {
	all, err := dump(func() ([]netlink.Route, error) { return handle.RouteList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("reading routes: %w", err)
	}
	return all, nil
}

// dump lists what the kernel has. Where that changed while it was read, the list may lack something, which the kernel
// says: it is read again.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	for range dumps - 1 {
		if found, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return list()
}

// dumps is how often a list is read at most.
const dumps = 20
