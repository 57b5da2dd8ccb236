// SPDX-License-Identifier: Apache-2.0

package openvswitch

import (
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/cache"

	"github.com/kuryr/raven/service/openvswitch/vswitchdb"
)

// The keys of an Interface's external_ids. Those of Raven mark its rows: no other row is ever changed.
const (
	IfaceID      = "iface-id"      // the Neutron port's UUID, by which OVN knows the interface
	AttachedMAC  = "attached-mac"  // the port's MAC address
	OVNInstalled = "ovn-installed" // "true" once the port's flows are in place; written by ovn-controller

	Sandbox   = "raven-sandbox" // CNI's container id
	IfName    = "raven-ifname"  // the interface's name in the sandbox
	Netns     = "raven-netns"   // the path of the sandbox's network namespace
	Pod       = "raven-pod"     // namespace/name
	PodUID    = "raven-pod-uid" // as CNI gave it: of a static pod that is not the mirror pod's
	Node      = "raven-node"    // the node's name, on the interface of the node itself
	markStart = "raven-"
)

// View is the state of the database at one moment. It must not be changed.
type View struct {
	Chassis Chassis
	// BridgeUUID is empty where the integration bridge does not exist.
	BridgeUUID string
	// Datapath is the bridge's datapath_type: "system" (or empty), or "netdev" in userspace.
	Datapath string
	// Interfaces are those of the integration bridge, by name.
	Interfaces map[string]Interface
	// Elsewhere are the names of the interfaces of other bridges.
	Elsewhere map[string]bool
}

// Chassis is what the Open_vSwitch row says of this machine, in the words of ovn-controller(8).
type Chassis struct {
	ID, Hostname       string // external_ids system-id and hostname
	Remote             string // ovn-remote: the southbound database
	EncapType, EncapIP string
	Version            string // of Open vSwitch
	PrivateKey         string // paths, for a southbound database on ssl
	Certificate        string
	CACert             string
}

// Interface is an interface of the integration bridge, with the port that holds it.
type Interface struct {
	Name, Type  string
	MAC         string // of an internal one; empty: any
	MTU         int    // that is asked for; 0: none
	ExternalIDs map[string]string

	UUID, PortUUID string // given by the database
	OFPort         int    // 0: not plugged in yet; negative: it could not be
	Error          string // why it could not be
}

// Raven says whether the row has a mark of Raven.
func (i Interface) Raven() bool {
	for key := range i.ExternalIDs {
		if strings.HasPrefix(key, markStart) {
			return true
		}
	}
	return false
}

// Installed says whether OVN has the port's flows in place.
func (i Interface) Installed() bool { return i.ExternalIDs[OVNInstalled] == "true" }

// Userspace says whether the bridge's datapath is in userspace.
func (v *View) Userspace() bool { return v.Datapath == "netdev" }

// Of returns Raven's interfaces of a sandbox, by name; an empty name of an interface means all.
func (v *View) Of(sandbox, ifName string) []Interface {
	return v.Where(func(i Interface) bool {
		return i.ExternalIDs[Sandbox] == sandbox && sandbox != "" && (ifName == "" || i.ExternalIDs[IfName] == ifName)
	})
}

// Where returns Raven's interfaces that match, sorted by name.
func (v *View) Where(match func(Interface) bool) []Interface {
	var found []Interface
	for _, i := range v.Interfaces {
		if i.Raven() && match(i) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b Interface) int { return strings.Compare(a.Name, b.Name) })
	return found
}

func newView(rows *cache.TableCache, bridge string) *View {
	v := &View{Interfaces: map[string]Interface{}, Elsewhere: map[string]bool{}}
	for _, m := range rows.Table(vswitchdb.OpenvSwitchTable).RowsShallow() {
		if row, ok := m.(*vswitchdb.OpenvSwitch); ok {
			v.Chassis = chassis(rows, row)
		}
	}
	for _, m := range rows.Table(vswitchdb.BridgeTable).RowsShallow() {
		row, ok := m.(*vswitchdb.Bridge)
		if !ok {
			continue
		}
		if row.Name == bridge {
			v.BridgeUUID, v.Datapath = row.UUID, row.DatapathType
		}
		for _, uuid := range row.Ports {
			port, ok := rows.Table(vswitchdb.PortTable).Row(uuid).(*vswitchdb.Port)
			if !ok {
				continue
			}
			for _, uuid := range port.Interfaces {
				i, ok := rows.Table(vswitchdb.InterfaceTable).Row(uuid).(*vswitchdb.Interface)
				switch {
				case !ok:
				case row.Name == bridge:
					v.Interfaces[i.Name] = interfaceOf(i, port.UUID)
				default:
					v.Elsewhere[i.Name] = true
				}
			}
		}
	}
	return v
}

func chassis(rows *cache.TableCache, row *vswitchdb.OpenvSwitch) Chassis {
	ids := row.ExternalIDs
	c := Chassis{
		ID: ids["system-id"], Hostname: ids["hostname"], Remote: ids["ovn-remote"],
		EncapType: ids["ovn-encap-type"], EncapIP: ids["ovn-encap-ip"], Version: value(row.OVSVersion),
	}
	if row.SSL != nil {
		if ssl, ok := rows.Table(vswitchdb.SSLTable).Row(*row.SSL).(*vswitchdb.SSL); ok {
			c.PrivateKey, c.Certificate, c.CACert = ssl.PrivateKey, ssl.Certificate, ssl.CaCert
		}
	}
	return c
}

func interfaceOf(row *vswitchdb.Interface, port string) Interface {
	return Interface{
		Name: row.Name, Type: row.Type, MAC: value(row.MAC), MTU: value(row.MTURequest), ExternalIDs: row.ExternalIDs,
		UUID: row.UUID, PortUUID: port, OFPort: value(row.Ofport), Error: value(row.Error),
	}
}

// value is what an optional column has, or nothing.
func value[T any](optional *T) (v T) {
	if optional != nil {
		v = *optional
	}
	return v
}
