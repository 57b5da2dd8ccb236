// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// place chooses the subnets of which a new port takes its addresses, one of every IP version, where it names none
// itself and its network is this cluster's. Neutron would choose among all subnets of the network, also of one that a
// create with unknown outcome made late beside the one that is kept: such a twin could never be removed any more. Of
// an expandable subnet and those that were added to it, the first with room is chosen.
func (b *Backend) place(tx *state.Tx, kind drivers.Kind, attrs map[string]any) []plan.Observed {
	network, _ := attrs["network_id"].(string)
	_, observed := tx.Cache.Get(drivers.KindNetwork, network)
	if _, named := attrs["fixed_ips"]; named || !observed || kind != drivers.KindPort {
		return nil
	}
	var chosen []plan.Observed
	for _, subnets := range choices(tx, network) {
		chosen = append(chosen, slices.MinFunc(subnets, func(x, y plan.Observed) int { return b.byRoom(tx, x, y) }))
	}
	return chosen
}

// choices lists the subnets of a network that are wanted, IPv4 first, and of twins the one that is kept; the first of
// an expandable one before the others.
func choices(tx *state.Tx, network string) [][]plan.Observed {
	byVersion := map[int64][]plan.Observed{}
	for _, subnet := range tx.Cache.Users(network, drivers.KindSubnet) {
		version, _ := subnet.Attrs["ip_version"].(int64)
		if kept, ok := tx.Cache.Find(subnet.Identity, drivers.KindSubnet); ok && kept.ID == subnet.ID &&
			expansion(tx, subnet) > 0 {
			byVersion[version] = append(byVersion[version], subnet)
		}
	}
	var choices [][]plan.Observed
	for _, version := range slices.Sorted(maps.Keys(byVersion)) {
		subnets := byVersion[version]
		slices.SortFunc(subnets, func(x, y plan.Observed) int {
			return cmp.Or(cmp.Compare(expansion(tx, x), expansion(tx, y)), state.Compare(x, y))
		})
		choices = append(choices, subnets)
	}
	return choices
}

// expansion is the number of a subnet among those that stand for an expandable one, 1 for any other, and 0 for one
// that its owner does not want.
func expansion(tx *state.Tx, subnet plan.Observed) int {
	o := tx.Object(subnet.Identity.Owner)
	if o == nil {
		return 0
	}
	for _, r := range o.Set.Resources {
		if r.Spec.Kind() != drivers.KindSubnet {
			continue
		}
		if n := plan.ExpansionOf(subnet.Identity.Name, r.Name); n > 0 {
			return n
		}
	}
	for _, name := range o.Set.Undecided {
		if tx.IsNamed(subnet, name) {
			return 1
		}
	}
	return 0
}

// byRoom orders the subnets of one choice: those with room as they come, then by what seems to be free, and those of
// which the cloud said that they are full last.
func (b *Backend) byRoom(tx *state.Tx, x, y plan.Observed) int {
	isFull := func(o plan.Observed) int {
		if b.isFull(tx, o.ID) {
			return 1
		}
		return 0
	}
	lacks := func(o plan.Observed) int { return max(0, 1-free(tx, o)) }
	return cmp.Or(isFull(x)-isFull(y), lacks(x)-lacks(y))
}

// free is how many addresses of a subnet are free, as far as is known: the cloud takes one for itself, and others may
// have ports there.
func free(tx *state.Tx, subnet plan.Observed) int {
	made, pending := tx.Cache.Uses(subnet.ID)
	return roomIn(subnet) - made - pending - 1
}

// noteFull notes that one of the subnets that a port was placed on is full: the one with the least room. It says
// whether the port may find room on another.
func (b *Backend) noteFull(tx *state.Tx, attrs map[string]any, placed []plan.Observed) bool {
	if len(placed) == 0 {
		return false
	}
	full := slices.MinFunc(placed, func(x, y plan.Observed) int { return free(tx, x) - free(tx, y) })
	b.fullSubnets[full.ID], _ = tx.Cache.Uses(full.ID)
	for _, next := range b.place(tx, drivers.KindPort, attrs) {
		if b.isFull(tx, next.ID) {
			return false
		}
	}
	return true
}

// isFull says whether a subnet was full when the cloud was last asked, and nothing has left it since.
func (b *Backend) isFull(tx *state.Tx, id string) bool {
	uses, known := b.fullSubnets[id]
	if !known {
		return false
	}
	made, _ := tx.Cache.Uses(id)
	if _, there := tx.Cache.Get(drivers.KindSubnet, id); made < uses || !there {
		delete(b.fullSubnets, id)
		return false
	}
	return true
}

// withAddresses returns the attributes of a port that takes an address of each subnet.
func withAddresses(attrs map[string]any, subnets []plan.Observed) map[string]any {
	if len(subnets) == 0 {
		return attrs
	}
	fixed := make([]any, 0, len(subnets))
	for _, subnet := range subnets {
		fixed = append(fixed, map[string]any{"subnet_id": subnet.ID})
	}
	placed := maps.Clone(attrs)
	placed["fixed_ips"] = fixed
	return placed
}

// markFull notes that the subnets of a port's network are full, so that an expandable one grows. It says, for people,
// where that ends.
func (b *Backend) markFull(step plan.Step) (note string) {
	network, _ := step.Attrs["network_id"].(string)
	b.env.State.Update(func(tx *state.Tx) {
		for _, subnet := range tx.Cache.Users(network, drivers.KindSubnet) {
			base, most := expandable(tx, subnet.Identity)
			if base == nil {
				continue
			}
			n := expansions(tx, *base)
			note = fmt.Sprintf("its network has %d of at most %d subnets", n, most)
			if n >= most {
				note += ": allow it more of them, or larger ones"
				continue
			}
			if key := state.KeyOf(drivers.KindSubnet, *base); b.full[key] != n {
				b.full[key] = n
				tx.WakeOwner(base.Owner)
			}
			note += ", and gets another"
		}
	})
	return note
}

// expandable returns the identity of the expandable subnet that a subnet stands for, and how many there may be.
func expandable(tx *state.Tx, id plan.Identity) (*plan.Identity, int) {
	o := tx.Object(id.Owner)
	if o == nil {
		return nil, 0
	}
	for _, r := range o.Set.Resources {
		if r.Spec.Kind() == drivers.KindSubnet && r.Expand > 1 && plan.ExpansionOf(id.Name, r.Name) > 0 {
			base := tx.Identity(id.Owner, r)
			return &base, min(r.Expand, plan.MaxExpand)
		}
	}
	return nil, 0
}

// expansions counts the subnets that stand for an expandable one.
func expansions(tx *state.Tx, base plan.Identity) int {
	n := 0
	for _, subnet := range tx.Cache.OwnedOf(base.Owner, drivers.KindSubnet) {
		if plan.ExpansionOf(subnet.Identity.Name, base.Name) > 0 {
			n++
		}
	}
	return n
}

// expandInterfaces gives every further subnet of an expandable one the router interfaces that the first one has.
func expandInterfaces(tx *state.Tx, w *state.Want) {
	var more []plan.Desired
	for _, r := range w.Set.Resources {
		ri, ok := r.Spec.(drivers.RouterInterface)
		if !ok || w.Claimed(r.Name) != "" || ri.SubnetID.Ref == nil || ri.SubnetID.Ref.Role != nil {
			continue
		}
		base := ri.SubnetID.Ref.Name
		for _, subnet := range tx.Cache.OwnedOf(w.Owner, drivers.KindSubnet) {
			name := subnet.Identity.Name
			n := plan.ExpansionOf(name, base)
			if n < 2 {
				continue
			}
			clone := ri
			clone.SubnetID = drivers.From(name)
			if ri.IPAddress.Ref != nil && ri.IPAddress.Ref.Name == base {
				clone.IPAddress = drivers.From(name, ri.IPAddress.Ref.Attribute)
			}
			r := r
			r.Name, r.Spec = fmt.Sprintf("%s.%d", r.Name, n), clone
			w.SetKind(name, drivers.KindSubnet)
			more = append(more, tx.Desired(w.Owner, r))
		}
	}
	slices.SortFunc(more, func(a, b plan.Desired) int { return cmp.Compare(a.Identity.Name, b.Identity.Name) })
	w.Desired = append(w.Desired, more...)
}

// plenty is enough room for any number of ports.
const plenty = 1 << 20

// room tells how many addresses are free for ports of a network, where all its subnets are this cluster's: as far as
// is known, and one less for every subnet, of which the cloud takes an address for itself. A port takes one of every
// IP version.
func (b *Backend) room(network string) (left int, known bool) {
	b.env.State.View(func(tx *state.Tx) {
		if _, observed := tx.Cache.Get(drivers.KindNetwork, network); !observed {
			return
		}
		byVersion := map[bool]int{}
		for _, subnet := range tx.Cache.Users(network, drivers.KindSubnet) {
			version, _ := subnet.Attrs["ip_version"].(int64)
			made, _ := tx.Cache.Uses(subnet.ID)
			byVersion[version == 6] += roomIn(subnet) - made - 1
		}
		left = plenty
		for _, n := range byVersion {
			left = min(left, max(n, 0))
		}
		known = len(byVersion) > 0
	})
	return left, known
}

// roomIn counts the addresses in a subnet's allocation pools.
func roomIn(subnet plan.Observed) int {
	total := 0
	for _, pool := range listOf(subnet.Attrs["allocation_pools"]) {
		start, errStart := netip.ParseAddr(strings.TrimSpace(textOf(plan.Field(pool, "start"))))
		end, errEnd := netip.ParseAddr(strings.TrimSpace(textOf(plan.Field(pool, "end"))))
		if errStart != nil || errEnd != nil {
			continue
		}
		size := new(big.Int).Sub(new(big.Int).SetBytes(end.AsSlice()), new(big.Int).SetBytes(start.AsSlice()))
		if !size.IsInt64() || size.Int64() >= plenty {
			return plenty
		}
		total += int(size.Int64()) + 1
	}
	return total
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}

func sameAttrs(a, b plan.Observed) bool { return reflect.DeepEqual(a.Attrs, b.Attrs) }
