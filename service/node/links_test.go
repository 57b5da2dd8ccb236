// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// TestManyLinks: the list of links is complete also while links come and go, when the kernel cannot tell it at once.
func TestManyLinks(t *testing.T) {
	needNetns(t)
	l, err := newLinks()
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	pair := func(name string) *netlink.Veth {
		return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-"}
	}
	for i := range 50 {
		link := pair(fmt.Sprint("many", i))
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(link) })
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			link := pair("fleeting")
			if err := errors.Join(netlink.LinkAdd(link), netlink.LinkDel(link)); err != nil {
				ended <- err
				return
			}
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
		}
	}()
	for range 200 {
		if _, err := l.ours(); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestMasquerade: the rule follows the interface's name, and nothing of another's is touched.
func TestMasquerade(t *testing.T) {
	needNetns(t)
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	other := conn.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyINet})
	if err := conn.Flush(); err != nil {
		t.Fatalf("nftables of this kernel: %v", err)
	}
	t.Cleanup(func() {
		conn.DelTable(other)
		if err := conn.Flush(); err != nil { // of the other one
			t.Error(err)
		}
	})
	for _, name := range []string{"raven-node0", "raven-node0", "leg", "", ""} {
		if err := masquerade(name); err != nil {
			t.Fatal(err)
		}
		rules := masqueradedBy(t, conn)
		if name == "" && len(rules) != 0 || name != "" && (len(rules) != 1 || rules[0] != name) {
			t.Errorf("with interface %q the rules are for %q", name, rules)
		}
	}
}

// masqueradedBy are the interfaces that have a rule, as the kernel tells.
func masqueradedBy(t *testing.T, conn *nftables.Conn) []string {
	t.Helper()
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		if table.Name != masqueradeTable {
			continue
		}
		rules, err := conn.GetRules(table, &nftables.Chain{Name: masqueradeChain, Table: table})
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			name, _ := rule.Exprs[1].(*expr.Cmp)
			last, _ := rule.Exprs[len(rule.Exprs)-1].(*expr.Masq)
			if name == nil || last == nil {
				t.Fatalf("rule %+v", rule.Exprs)
			}
			names = append(names, strings.TrimRight(string(name.Data), "\x00"))
		}
	}
	return names
}
