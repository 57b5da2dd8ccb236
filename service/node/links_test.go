// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"net/netip"
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

// TestMasquerade: the rules follow the interface's name and addresses, and nothing of another's is touched.
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
	four, six := netip.MustParseAddr("10.77.0.6"), netip.MustParseAddr("fd00::6")
	for _, step := range []struct {
		name string
		from []netip.Addr
		want string
	}{
		{"raven-node0", nil, "raven-node0"},
		{"raven-node0", nil, "raven-node0"},
		{"raven-node0", []netip.Addr{four}, "raven-node0 10.77.0.6, raven-node0"},
		{"raven-node0", []netip.Addr{four, six}, "raven-node0 10.77.0.6, raven-node0 fd00::6, raven-node0"},
		{"leg", nil, "leg"},
		{"", nil, ""},
		{"", nil, ""},
	} {
		if err := masquerade(step.name, step.from); err != nil {
			t.Fatal(err)
		}
		if rules := strings.Join(masqueradedBy(t, conn), ", "); rules != step.want {
			t.Errorf("with interface %q and %v the rules are for %q, want %q", step.name, step.from, rules, step.want)
		}
	}
}

// masqueradedBy are the interfaces that have a rule, with the address that it gives, as the kernel tells.
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
			_, masquerades := rule.Exprs[len(rule.Exprs)-1].(*expr.Masq)
			_, translates := rule.Exprs[len(rule.Exprs)-1].(*expr.NAT)
			if name == nil || !masquerades && !translates {
				t.Fatalf("rule %+v", rule.Exprs)
			}
			text := strings.TrimRight(string(name.Data), "\x00")
			if translates {
				address, _ := rule.Exprs[len(rule.Exprs)-2].(*expr.Immediate)
				ip, _ := netip.AddrFromSlice(address.Data)
				text += " " + ip.String()
			}
			names = append(names, text)
		}
	}
	return names
}
