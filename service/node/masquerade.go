// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// The table of nftables and its one chain, which are this daemon's alone.
const (
	masqueradeTable = "raven-node"
	masqueradeChain = "postrouting"
)

// masquerade has what leaves by an interface, and was sent to another address than the pod's by who sent it (to a
// hostPort or a NodePort), come from an address of the interface: from another one port security would drop it. The
// addresses are one of an IP version; of one that has none it is the interface's first, which is that of the node's own
// connections. No interface is no rule. What is as it should be stays untouched.
func masquerade(name string, from []netip.Addr) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	table := &nftables.Table{Name: masqueradeTable, Family: nftables.TableFamilyINet}
	chain := &nftables.Chain{
		Name: masqueradeChain, Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		// Before kube-proxy's chain, which would give what it marks the interface's first address.
		Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource - 1),
	}
	rules := masqueradeRules(name, from)
	there, right, err := masquerades(conn, table, chain, rules)
	if err != nil {
		return err
	}
	if right || name == "" && !there {
		return nil
	}
	if there {
		conn.DelTable(table)
	}
	if name != "" {
		conn.AddTable(table)
		conn.AddChain(chain)
		for _, rule := range rules {
			rule.Table, rule.Chain = table, chain
			conn.AddRule(rule)
		}
	}
	if err := conn.Flush(); err != nil { // all of it or nothing
		return fmt.Errorf("writing table inet %s of nftables, by which hostPorts reach pods: %w", masqueradeTable, err)
	}
	return nil
}

// masquerades says whether the table is there, and whether it has the rules that it should have and no other.
func masquerades(
	conn *nftables.Conn, table *nftables.Table, chain *nftables.Chain, want []*nftables.Rule,
) (there, right bool, err error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, false, fmt.Errorf("listing the tables of nftables: %w", err)
	}
	for _, one := range tables {
		there = there || one.Name == masqueradeTable
	}
	if !there {
		return false, false, nil
	}
	have, err := conn.GetRules(table, chain)
	if errors.Is(err, unix.ENOENT) {
		return true, false, nil
	}
	if err != nil {
		return true, false, fmt.Errorf("listing the rules of table inet %s of nftables: %w", masqueradeTable, err)
	}
	sameRule := func(a, b *nftables.Rule) bool { return bytes.Equal(a.UserData, b.UserData) }
	return true, len(want) > 0 && slices.EqualFunc(have, want, sameRule), nil
}

// masqueradeRules are, in this order, for each address, and for what is left; no name is no rule:
//
//	oifname NAME ct status dnat meta nfproto ipv4 snat ip to ADDRESS
//	oifname NAME ct status dnat masquerade
//
// Their comments, by which they are known again, say all that differs.
func masqueradeRules(name string, from []netip.Addr) []*nftables.Rule {
	if name == "" {
		return nil
	}
	var rules []*nftables.Rule
	add := func(comment string, verdict ...expr.Any) {
		rules = append(rules, &nftables.Rule{
			Exprs:    append(translatedBy(name), verdict...),
			UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
		})
	}
	const register = 1
	for _, one := range from {
		family := byte(unix.NFPROTO_IPV6)
		if one.Is4() {
			family = unix.NFPROTO_IPV4
		}
		add(fmt.Sprintf("hostPorts by %s from %s", name, one),
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{family}},
			&expr.Immediate{Register: register, Data: one.AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(family), RegAddrMin: register})
	}
	add("hostPorts by "+name, &expr.Masq{})
	return rules
}

// translatedBy is: oifname NAME ct status dnat.
func translatedBy(name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	const register, translated = 1, 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: padded},
		&expr.Ct{Key: expr.CtKeySTATUS, Register: register},
		&expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(translated), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: make([]byte, 4)},
	}
}
