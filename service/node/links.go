// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// links makes and removes the pairs of links that join sandboxes to the switch. It works in the network namespace that
// the process was started in.
type links struct {
	handle *netlink.Handle
}

func newLinks() (*links, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return &links{handle}, nil
}

func (l *links) close() { l.handle.Close() }

// pair is a pair of links to be made.
type pair struct {
	Host    string // the name of the end in the switch
	Mark    mark
	Netns   string // the path of the sandbox's network namespace
	IfName  string // the name of the end in there
	MAC     net.HardwareAddr
	MTU     int // 0: the kernel's default
	Offload bool
}

// mark says what a link is for. It is kept as the link's alias, so that it outlives daemon and database. Pod is a hash
// of the pod's namespace and name, which an alias is too short for. Netns is the path of the sandbox's network
// namespace; a long one is left out.
type mark struct{ Sandbox, IfName, Pod, UID, Netns string }

const (
	noAddress  = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	markPrefix = "raven "
	hostPrefix = "rvn"
	maxAlias   = 255 // IFALIASZ of linux/if.h, without the byte that ends it
)

func (m mark) String() string {
	text := fmt.Sprintf(markPrefix+"sandbox=%s ifname=%s pod=%s uid=%s", m.Sandbox, m.IfName, m.Pod, m.UID)
	netns := " netns=" + m.Netns
	if m.Netns == "" || strings.ContainsFunc(m.Netns, unicode.IsSpace) || len(text)+len(netns) > maxAlias {
		return text
	}
	return text + netns
}

func parseMark(alias string) (mark, bool) {
	rest, marked := strings.CutPrefix(alias, markPrefix)
	if !marked {
		return mark{}, false
	}
	var m mark
	for _, field := range strings.Fields(rest) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "sandbox":
			m.Sandbox = value
		case "ifname":
			m.IfName = value
		case "pod":
			m.Pod = value
		case "uid":
			m.UID = value
		case "netns":
			m.Netns = value
		}
	}
	return m, m.Sandbox != "" && m.IfName != ""
}

// hostName is the name of the link of a sandbox's interface in the switch: the same each time, so that what was left
// behind is found again.
func hostName(sandbox, ifName string) string { return hostPrefix + hash(sandbox+" "+ifName) }

// hash is a short hash of a text, as 12 hexadecimal digits.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:12]
}

// isHostName says whether a name may be one of hostName's.
func isHostName(name string) bool {
	rest, begins := strings.CutPrefix(name, hostPrefix)
	_, err := hex.DecodeString(rest)
	return begins && err == nil && len(rest) == 12
}

// create makes a pair in place of what is left of an earlier one, the sandbox's end in its namespace at once, so that
// it is never anywhere else. Nothing is up yet but the switch's end.
func (l *links) create(p pair) (err error) {
	if err := l.remove(p.Host); err != nil {
		return err
	}
	ns, err := openNetns(p.Netns)
	if err != nil {
		return err
	}
	defer closeNetns(ns)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = p.Host, p.MTU
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: p.IfName, PeerHardwareAddr: p.MAC, PeerNamespace: netlink.NsFd(int(ns)),
		PeerTxQLen: -1, PeerMTU: uint32(p.MTU),
	}
	if err := l.handle.LinkAdd(veth); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s has an interface %s already: another plugin has made it, or the sandbox is not new", p.Netns,
				p.IfName)
		}
		return fmt.Errorf("making the pair of links %s and %s: %w", p.Host, p.IfName, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.remove(p.Host))
		}
	}()
	if err := l.handle.LinkSetAlias(veth, p.Mark.String()); err != nil {
		return fmt.Errorf("marking link %s: %w", p.Host, err)
	}
	// The switch's end has no address of its own, and sends nothing by itself.
	if err := l.handle.LinkSetIP6AddrGenMode(veth, noAddress); err != nil && hasIPv6() {
		return fmt.Errorf("taking link %s its IPv6 address: %w", p.Host, err)
	}
	if !p.Offload {
		if err := errors.Join(noOffload(p.Host), inside(ns, func() error { return noOffload(p.IfName) })); err != nil {
			return err
		}
	}
	if err := l.handle.LinkSetUp(veth); err != nil {
		return fmt.Errorf("setting link %s up: %w", p.Host, err)
	}
	return nil
}

// remove takes a link away, and with it its other end. That it is not there is no error.
func (l *links) remove(name string) error {
	link, err := l.handle.LinkByName(name)
	if isGone(err) {
		return nil
	}
	if err == nil {
		err = l.handle.LinkDel(link)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("removing link %s: %w", name, err)
	}
	return nil
}

// exists says whether there is a link of that name.
func (l *links) exists(name string) (bool, error) {
	_, err := l.handle.LinkByName(name)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for link %s: %w", name, err)
	}
	return true, nil
}

// hostLink is a link of a sandbox's interface in the switch; one without a mark was not finished.
type hostLink struct {
	mark
	index int
}

// ours returns the links that are called as hostName has it, by name.
func (l *links) ours() (map[string]hostLink, error) {
	list, err := dump(l.handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	found := map[string]hostLink{}
	for _, link := range list {
		if attrs := link.Attrs(); link.Type() == "veth" && isHostName(attrs.Name) {
			m, _ := parseMark(attrs.Alias)
			found[attrs.Name] = hostLink{m, attrs.Index}
		}
	}
	return found, nil
}

// removeUnmarked removes a link if it is still the one with that index, and has no mark.
func (l *links) removeUnmarked(name string, index int) (removed bool, err error) {
	link, err := l.handle.LinkByName(name)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for link %s: %w", name, err)
	}
	if _, marked := parseMark(link.Attrs().Alias); marked || link.Attrs().Index != index {
		return false, nil
	}
	if err := l.handle.LinkDel(link); err != nil && !isGone(err) {
		return false, fmt.Errorf("removing link %s: %w", name, err)
	}
	return true, nil
}

// configure gives the sandbox's interface what the port has, and takes from it what it does not have any more.
func (l *links) configure(path, ifName string, a *attachment) error {
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
		return fmt.Errorf("looking for %s in %s: %w", ifName, path, err)
	}
	if a.hasIPv6() {
		if err := inside(ns, func() error { return enableIPv6(ifName) }); err != nil {
			return err
		}
	}
	return setUp(handle, link, a, a.routes())
}

// setUp gives a link its MAC address, MTU, addresses and routes, in this order, and sets it up.
func setUp(handle *netlink.Handle, link netlink.Link, a *attachment, routes []route) error {
	attrs := link.Attrs()
	if len(a.MAC) > 0 && !bytes.Equal(attrs.HardwareAddr, a.MAC) {
		if err := handle.LinkSetHardwareAddr(link, a.MAC); err != nil {
			return fmt.Errorf("giving %s the MAC address %s: %w", attrs.Name, a.MAC, err)
		}
	}
	if a.MTU > 0 && attrs.MTU != a.MTU {
		if err := handle.LinkSetMTU(link, a.MTU); err != nil {
			return fmt.Errorf("giving %s the MTU %d: %w", attrs.Name, a.MTU, err)
		}
	}
	if err := handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", attrs.Name, err)
	}
	if err := setAddresses(handle, link, a); err != nil {
		return err
	}
	return setRoutes(handle, link, routes)
}

func setAddresses(handle *netlink.Handle, link netlink.Link, a *attachment) error {
	name := link.Attrs().Name
	have, err := readAddresses(handle, link)
	if err != nil {
		return err
	}
	there := map[netip.Prefix]bool{}
	for _, one := range have {
		prefix, known := prefixOf(one.IPNet)
		if !known || prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		if there[prefix] = a.has(prefix); there[prefix] {
			continue
		}
		if err := handle.AddrDel(link, &one); err != nil {
			return fmt.Errorf("taking address %s from %s: %w", prefix, name, err)
		}
	}
	for _, one := range a.Addresses {
		if there[one.Prefix] {
			continue
		}
		add := &netlink.Addr{IPNet: netOf(one.Prefix)}
		if one.Prefix.Addr().Is6() {
			add.Flags = unix.IFA_F_NODAD // Neutron has given it to this port alone: nothing to find out
		}
		if err := handle.AddrReplace(link, add); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", name, one.Prefix, err)
		}
	}
	return nil
}

// setRoutes replaces the routes of a link that this daemon has made; they are marked by their protocol.
func setRoutes(handle *netlink.Handle, link netlink.Link, routes []route) error {
	attrs := link.Attrs()
	want := map[string]bool{}
	for _, r := range routes {
		add := &netlink.Route{
			LinkIndex: attrs.Index, Dst: netOf(r.Destination), Protocol: routeProtocol,
			Table: unix.RT_TABLE_MAIN, Family: familyOf(r.Destination.Addr()),
		}
		if r.Gateway.IsValid() {
			add.Gw = net.IP(r.Gateway.AsSlice())
		} else {
			add.Scope = netlink.SCOPE_LINK
		}
		if r.Source.IsValid() {
			add.Src = net.IP(r.Source.AsSlice())
		}
		if err := handle.RouteReplace(add); err != nil {
			return fmt.Errorf("giving %s the route to %s by %s: %w", attrs.Name, r.Destination, r.Gateway, err)
		}
		want[r.Destination.String()] = true
	}
	have, err := readRoutes(handle, link)
	if err != nil {
		return err
	}
	for _, r := range have {
		if r.Protocol != routeProtocol || want[destinationOf(r)] {
			continue
		}
		if err := handle.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("taking the route to %s from %s: %w", r.Dst, attrs.Name, err)
		}
	}
	return nil
}

// has says whether an address is one of the port's.
func (a *attachment) has(prefix netip.Prefix) bool {
	for _, one := range a.Addresses {
		if one.Prefix == prefix {
			return true
		}
	}
	return false
}

// routeProtocol marks the routes that this daemon makes (rtnetlink's protocols from 5 on are free to choose).
const routeProtocol = netlink.RouteProtocol(179)

// openNetns opens the network namespace at a path.
func openNetns(path string) (netns.NsHandle, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return ns, &netnsError{path, err}
	}
	if kind, err := unix.IoctlRetInt(int(ns), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		closeNetns(ns)
		return netns.None(), &netnsError{path, errors.New("it is something else")}
	}
	return ns, nil
}

func closeNetns(ns netns.NsHandle) { _ = ns.Close() }

// netnsError says that a sandbox's network namespace cannot be entered.
type netnsError struct {
	path string
	err  error
}

func (n *netnsError) Error() string {
	if errors.Is(n.err, os.ErrNotExist) {
		return fmt.Sprintf("there is no network namespace %s: the daemon must see the folder that the container runtime "+
			"mounts them in", n.path)
	}
	return fmt.Sprintf("opening the network namespace %s: %v", n.path, n.err)
}

func (n *netnsError) Unwrap() error { return n.err }

// inside calls a function on a thread in another network namespace.
func inside(ns netns.NsHandle, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("opening the thread's own network namespace: %w", err)
			return
		}
		defer closeNetns(own)
		if err := netns.Set(ns); err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("entering a network namespace: %w", err)
			return
		}
		err = f()
		if back := netns.Set(own); back == nil {
			runtime.UnlockOSThread() // else the thread ends with this goroutine
		}
		result <- err
	}()
	return <-result
}

// noOffload has the kernel compute checksums, and cut segments, before a link: the userspace datapath forwards packets
// as they are.
func noOffload(name string) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("asking for the features of %s: %w", name, err)
	}
	defer tool.Close()
	have, err := tool.Features(name)
	if err != nil {
		return fmt.Errorf("asking for the features of %s: %w", name, err)
	}
	off := map[string]bool{}
	for _, kind := range []string{"ip-generic", "ipv4", "ipv6", "sctp"} {
		if feature := "tx-checksum-" + kind; have[feature] {
			off[feature] = false
		}
	}
	if len(off) == 0 {
		return nil
	}
	if err := tool.Change(name, off); err != nil {
		return fmt.Errorf("switching the checksum offload of %s off: %w", name, err)
	}
	return nil
}

// hasIPv6 says whether the port has an IPv6 address.
func (a *attachment) hasIPv6() bool {
	return slices.ContainsFunc(a.Addresses, func(one address) bool { return one.Prefix.Addr().Is6() })
}

// enableIPv6 switches IPv6 on for an interface that gets an address of it, in this thread's network namespace: some
// runtimes and hosts switch it off.
func enableIPv6(ifName string) error {
	path := "/proc/sys/net/ipv6/conf/" + ifName + "/disable_ipv6"
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s gets an IPv6 address, and the kernel has no IPv6: %w", ifName, err)
	}
	if strings.TrimSpace(string(text)) == "0" {
		return nil
	}
	if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
		return fmt.Errorf("switching IPv6 on for %s: %w", ifName, err)
	}
	return nil
}

// hasIPv6 says whether the kernel has IPv6.
func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}

func isGone(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone) || errors.Is(err, unix.ENODEV)
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// netOf and prefixOf turn a prefix into what netlink knows, and back.
func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, known := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !known || bits == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a.Unmap(), ones), true
}

// destinationOf is a route's destination as a netip.Prefix would be printed; that of a default route may be nil.
func destinationOf(r netlink.Route) string {
	if prefix, known := prefixOf(r.Dst); known {
		return prefix.String()
	}
	if r.Family == netlink.FAMILY_V6 {
		return "::/0"
	}
	return "0.0.0.0/0"
}
