// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
)

// portField is the path of the annotation with the node's port.
const portField = "metadata.annotations['" + contract.Port + "']"

// ownAddresses returns the addresses that connections of a node's own programs come from: those of its port that are
// not the ones of translated connections. Of an IP version of which the node's daemon does not tell the latter there is
// none, since what clients outside send to a NodePort would come from it as well.
func ownAddresses(uid string, annotations map[string]string) ([]netip.Addr, error) {
	text, told := annotations[contract.Port], annotations[contract.TranslatedAddresses]
	if text == "" || told == "" {
		return nil, nil
	}
	var port struct {
		DeviceID string `json:"device_id"`
		FixedIPs []struct {
			Address string `json:"ip_address"`
		} `json:"fixed_ips"`
	}
	if err := json.Unmarshal([]byte(text), &port); err != nil {
		return nil, fmt.Errorf("annotation %s is not the JSON document of a port: %w", contract.Port, err)
	}
	if port.DeviceID != uid {
		return nil, nil // of a Node that had the name before
	}
	var own, translated []netip.Addr
	for _, one := range port.FixedIPs {
		address, err := netip.ParseAddr(one.Address)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: ip_address: %w", contract.Port, err)
		}
		if slices.Contains(strings.Split(told, ","), address.String()) {
			translated = append(translated, address)
		} else {
			own = append(own, address)
		}
	}
	sameVersion := func(a netip.Addr) bool {
		return slices.ContainsFunc(translated, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
	}
	own = slices.DeleteFunc(own, func(a netip.Addr) bool { return !sameVersion(a) })
	slices.SortFunc(own, netip.Addr.Compare)
	return own, nil
}

// programs adds the group that lets in what the node's own programs send to pods.
func (b *builder) programs() {
	b.set.Resources = append(b.set.Resources, drivers.Resource{
		Name: "programs", Exports: []string{drivers.NodePrograms},
		Spec: drivers.SecurityGroup{Name: new(cut("node-" + b.name)), DefaultRules: new(false)},
	})
	for _, one := range b.own {
		etherType := "IPv6"
		if one.Is4() {
			etherType = "IPv4"
		}
		from := netip.PrefixFrom(one, one.BitLen()).String()
		b.set.Resources = append(b.set.Resources, drivers.Resource{
			Name: "programs-ingress-" + strings.ReplaceAll(one.String(), ":", "-"),
			Spec: drivers.SecurityGroupRule{
				SecurityGroupID: drivers.From("programs"), Direction: new("ingress"), EtherType: new(etherType),
				RemoteIPPrefix: new(from),
			},
		})
	}
}
