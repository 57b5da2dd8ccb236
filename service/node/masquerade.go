// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"

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
// hostPort or a NodePort), come from the interface's own address: from another one port security would drop it. No
// interface is no rule. What is as it should be stays untouched.
func masquerade(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	table := &nftables.Table{Name: masqueradeTable, Family: nftables.TableFamilyINet}
	chain := &nftables.Chain{
		Name: masqueradeChain, Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	}
	there, right, err := masquerades(conn, table, chain, name)
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
		conn.AddRule(&nftables.Rule{
			Table: table, Chain: chain, Exprs: masqueradeRule(name), UserData: masqueradeComment(name),
		})
	}
	if err := conn.Flush(); err != nil { // all of it or nothing
		return fmt.Errorf("writing table inet %s of nftables, by which hostPorts reach pods: %w", masqueradeTable, err)
	}
	return nil
}

// masquerades says whether the table is there, and whether it has the rule of an interface and no other.
func masquerades(
	conn *nftables.Conn, table *nftables.Table, chain *nftables.Chain, name string,
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
	rules, err := conn.GetRules(table, chain)
	if errors.Is(err, unix.ENOENT) {
		return true, false, nil
	}
	if err != nil {
		return true, false, fmt.Errorf("listing the rules of table inet %s of nftables: %w", masqueradeTable, err)
	}
	return true, name != "" && len(rules) == 1 && bytes.Equal(rules[0].UserData, masqueradeComment(name)), nil
}

// masqueradeComment is the rule's comment, by which it is known again.
func masqueradeComment(name string) []byte {
	return userdata.AppendString(nil, userdata.TypeComment, "hostPorts by "+name)
}

// masqueradeRule is: oifname NAME ct status dnat masquerade.
func masqueradeRule(name string) []expr.Any {
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
		&expr.Masq{},
	}
}
