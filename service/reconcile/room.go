package reconcile

import (
	"math/big"
	"net/netip"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// plenty is enough room for any number of ports.
const plenty = 1 << 20

// room tells how many addresses are free for ports of a network, where all its subnets are ours: as far as is known, and one
// less for every subnet, of which the cloud takes an address for itself. A port takes one of every IP version.
func (e *Engine) room(network string) (free int, known bool) {
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ours := s.cloud.entries[resourceKey{drivers.KindNetwork, network}]; !ours {
		return 0, false
	}
	byVersion := map[bool]int{}
	for _, subnet := range s.cloud.subnetsOf(network) {
		version, _ := subnet.Attrs["ip_version"].(int64)
		byVersion[version == 6] += roomIn(subnet) - len(s.cloud.usedBy[subnet.ID]) - 1
	}
	free = plenty
	for _, n := range byVersion {
		free = min(free, max(n, 0))
	}
	return free, len(byVersion) > 0
}

// roomIn counts the addresses in a subnet's allocation pools.
func roomIn(subnet plan.Observed) int {
	total := 0
	for _, element := range listOf(subnet.Attrs["allocation_pools"]) {
		pool, _ := element.(map[string]any)
		start, errStart := netip.ParseAddr(textOf(pool["start"]))
		end, errEnd := netip.ParseAddr(textOf(pool["end"]))
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
	return strings.TrimSpace(text)
}
