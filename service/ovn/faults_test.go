// SPDX-License-Identifier: Apache-2.0

package ovn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
)

func TestConflictingChangesAreRepaired(t *testing.T) {
	for name, test := range map[string]struct {
		what string
		args func(r *rig) []string
	}{
		"a row is deleted": {
			"udp row gone", func(r *rig) []string { return []string{"lb-del", r.uuidOf("web/u1:udp", "raven")} },
		},
		"all rows are deleted": {
			"all rows gone", func(*rig) []string { return []string{"--all", "destroy", "Load_Balancer"} },
		},
		"a VIP is changed": {"another backend", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), `vips:"10.0.0.1:80"="6.6.6.6:6"`}
		}},
		"an option is changed": {"no reject", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "options:reject=false"}
		}},
		"connections would be cut": {"ct_flush", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "options:ct_flush=true"}
		}},
		"a protocol is changed": {"sctp", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:udp", "raven"), "protocol=sctp"}
		}},
		"it is taken out of its group": {"no group", func(r *rig) []string {
			return []string{
				"remove", "Load_Balancer_Group", r.column("Load_Balancer_Group", "_uuid")[0], "load_balancer",
				r.uuidOf("web/u1:udp", "raven"),
			}
		}},
		"a row is doubled": {"twin", func(*rig) []string {
			return []string{
				"create", "Load_Balancer", "name=twin", "protocol=tcp",
				`external_ids={raven\:cluster=c1,raven\:owner=serv~6a3033\:u1,raven\:name=lb,raven\:policy=delete,raven\:part=tcp}`,
			}
		}},
		"its backends are chosen otherwise": {"selection fields", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "selection_fields=ip_src,ip_dst"}
		}},
		"clients are learnt": {"affinity timeout", func(r *rig) []string { // as rows of Raven's had it once
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "options:affinity_timeout=60"}
		}},
		"its backends are checked": {"health check", func(r *rig) []string {
			return []string{
				"--", "--id=@hc", "create", "Load_Balancer_Health_Check", `vip="10.0.0.1:80"`, "--", "set", "Load_Balancer",
				r.uuidOf("web/u1:tcp", "raven"),
				"health_check=@hc", `ip_port_mappings:10.1.0.4="port:10.1.0.1"`,
			}
		}},
		"external ids are lost": {"no ids", func(r *rig) []string {
			return []string{"clear", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "external_ids"}
		}},
		"all external ids are lost": {"no ids at all", func(r *rig) []string {
			return []string{
				"clear", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), "external_ids", "--", "clear", "Load_Balancer",
				r.uuidOf("web/u1:udp", "raven"), "external_ids",
			}
		}},
		"a part is changed": {"another part", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), `external_ids:"raven:part"=sctp`}
		}},
		"two parts are exchanged": {"crossed", func(r *rig) []string {
			return []string{
				"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), `external_ids:"raven:part"=udp`, "--",
				"set", "Load_Balancer", r.uuidOf("web/u1:udp", "raven"), `external_ids:"raven:part"=tcp`,
			}
		}},
		"it is given to another owner": {"another owner", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), `external_ids:"raven:owner"="x:u2"`}
		}},
		"it is given to another cluster": {"another cluster", func(r *rig) []string {
			return []string{"set", "Load_Balancer", r.uuidOf("web/u1:tcp", "raven"), `external_ids:"raven:cluster"=c2`}
		}},
		"its group is renamed": {"mine", func(r *rig) []string {
			return []string{"set", "Load_Balancer_Group", r.column("Load_Balancer_Group", "_uuid")[0], "name=mine"}
		}},
		"its group is given to another": {"another's", func(r *rig) []string {
			return []string{
				"set", "Load_Balancer_Group", r.column("Load_Balancer_Group", "_uuid")[0],
				`name="raven:cluster=c1 raven:owner=x:u2 raven:name=g raven:policy=delete"`,
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ctl("ls-add", "neutron-net1")
			g := r.group("net1")
			vips := []any{
				vip("TCP", "10.0.0.1", 80, 0, backend("10.1.0.4", 1)), vip("UDP", "10.0.0.1", 80, 0, backend("10.1.0.4", 1)),
			}
			was := r.balancer("u1", g, vips...)
			r.seen.forget()
			r.ctl(test.args(r)...)
			r.until("it is told: "+test.what, func() bool { return r.seen.hasChanged(was.ID) })
			now, there, err := r.Get(kindBalancer, was.ID)
			if err != nil || there && cmp.Equal(now, was) {
				t.Fatalf("it is shown as it was (error %v), so that it would not be repaired", err)
			}
			if r.group("net1") != g {
				t.Error("the group is another one")
			}
			var repaired plan.Observed
			if there {
				// all that differs
				repaired, err = r.Update(t.Context(), kindBalancer, was.ID, map[string]any{"name": "web/u1", "vips": vips})
			} else {
				repaired = r.balancer("u1", g, vips...)
			}
			if diff := cmp.Diff(was, repaired); err != nil || diff != "" {
				t.Error(err, diff)
			}
			if rows := r.column("Load_Balancer", "name"); !cmp.Equal(rows, []string{"web/u1:tcp", "web/u1:udp"}) {
				t.Errorf("rows %v", rows)
			}
			if rows := r.column("Load_Balancer_Group", "name"); len(rows) != 1 ||
				!strings.Contains(rows[0], "service-balancers") {
				t.Errorf("groups %v", rows)
			}
			if s := r.Status(); s.Transactions["refused"] > 0 || s.Connections != 1 {
				t.Errorf("refused %d, connections %d: it was not written as what is there", s.Transactions["refused"],
					s.Connections)
			}
		})
	}
}

func TestAGroupThatIsLost(t *testing.T) {
	r := newRig(t)
	r.ctl("ls-add", "neutron-net1")
	g := r.group("net1")
	was := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0))
	r.seen.forget()
	r.ctl("clear", "Logical_Switch", "neutron-net1", "load_balancer_group", "--", "destroy", "Load_Balancer_Group",
		r.column("Load_Balancer_Group", "_uuid")[0])
	r.until("both are told", func() bool { return r.seen.hasChanged(g) && r.seen.hasChanged(was.ID) })
	r.group("net1")
	if now, _, err := r.Get(kindBalancer, was.ID); err != nil || !cmp.Equal(now, was) {
		t.Errorf("with the group back its load balancers are not in it again: %v, error %v", now, err)
	}
}

func TestServerIsKilled(t *testing.T) {
	r := newRig(t)
	g := r.group()
	was := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0))
	r.server.Kill()
	r.until("it is unavailable", func() bool { return !r.Status().Connected })
	_, err := r.List(kindBalancer)
	unavailable := (*ovn.UnavailableError)(nil)
	if !errors.As(err, &unavailable) {
		t.Fatalf("list without a server: error %v, want an UnavailableError", err)
	}
	_, err = r.Update(t.Context(), kindBalancer, was.ID, map[string]any{"vips": []any{}})
	if !errors.As(err, &unavailable) {
		t.Errorf("update without a server: error %v, want an UnavailableError", err)
	}
	if err := r.Delete(t.Context(), kindBalancer, was.ID); !errors.As(err, &unavailable) {
		t.Errorf("delete without a server: error %v, want an UnavailableError", err)
	}
	r.seen.forget()
	if err := r.server.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.until("it is back", func() bool { r.seen.mu.Lock(); defer r.seen.mu.Unlock(); return r.seen.back == 1 })
	list, err := r.List(kindBalancer)
	if diff := cmp.Diff([]plan.Observed{was}, list); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if r.seen.hasChanged(was.ID) {
		t.Error("it is told to have changed, and has not")
	}
}

func TestDatabaseIsWiped(t *testing.T) {
	r := newRig(t)
	g := r.group()
	was := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0))
	r.seen.forget()
	r.server.Kill()
	if err := errors.Join(r.server.Wipe(), r.server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.until("both are told to be gone", func() bool { return r.seen.hasChanged(g) && r.seen.hasChanged(was.ID) })
	if list, err := r.List(kindBalancer); err != nil || len(list) > 0 {
		t.Errorf("list %v, error %v, want none", list, err)
	}
	r.group()
	if now := r.balancer("u1", g, vip("TCP", "10.0.0.1", 80, 0)); !cmp.Equal(now, was) {
		t.Error(cmp.Diff(was, now))
	}
}

func TestManyChangesAtOnceGoTogether(t *testing.T) {
	r := newRig(t)
	g := r.group()
	const n = 300
	before := r.committed()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, err := r.Create(t.Context(), kindBalancer, identity("service-proxy", fmt.Sprint("u", i), "lb"), map[string]any{
				"name": "web", "group_id": g,
				"vips": []any{vip("TCP", fmt.Sprintf("10.0.%d.%d", i/250, i%250), 80, 0, backend("10.1.0.4", 1))},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if list, err := r.List(kindBalancer); err != nil || len(list) != n {
		t.Errorf("%d load balancers, error %v", len(list), err)
	}
	if got := r.committed() - before; got > n/3 {
		t.Errorf("%d transactions for %d changes", got, n)
	}
}

func TestFenced(t *testing.T) {
	server := start(t)
	fenced := errors.New("does not lead")
	r := connect(t, server, ovn.Config{
		Endpoints: []string{server.Unix()},
		Pass:      func(context.Context) (context.Context, context.CancelFunc, error) { return nil, nil, fenced },
	})
	_, err := r.Create(t.Context(), kindGroup, identity(plan.Shared, "", "g"), map[string]any{})
	if !errors.Is(err, fenced) {
		t.Errorf("error %v, want that of the fence", err)
	}
	if got := r.column("Load_Balancer_Group", "name"); len(got) > 0 {
		t.Errorf("written all the same: %v", got)
	}
}

// TestOldOVNIsTold: what an old northd ignores is in the status, as soon as it has written which one it is.
func TestOldOVNIsTold(t *testing.T) {
	r := newRig(t)
	r.ctl("init", "--", "set", "NB_Global", ".", "options:northd_internal_version=22.09.1-20.25.0-67.6")
	r.until("it is old", func() bool {
		s := r.Status()
		return s.Version != "" && strings.Contains(s.Outdated, "UDP flows")
	})
	r.ctl("set", "NB_Global", ".", "options:northd_internal_version=23.03.1-20.27.0-70.6")
	r.until("it is not any more", func() bool { return r.Status().Outdated == "" })
}

func TestConfig(t *testing.T) {
	for endpoint, says := range map[string]string{
		"": "is empty", "10.0.0.1:6641": "begins with none", "unix:nb.sock": "no path",
		"tcp:10.0.0.1": "not tcp:address:port", "ssl:10.0.0.1:6641": "takes nb_private_key",
		"tcp:fd00::1:6641": "in brackets",
	} {
		c := ovn.Config{Endpoints: strings.Fields(endpoint)}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want one with %q", endpoint, err, says)
		}
	}
	for _, endpoint := range []string{"unix:/run/ovn/ovnnb_db.sock", "tcp:10.0.0.1:6641", "tcp:[fd00::1]:6641"} {
		c := ovn.Config{Endpoints: []string{endpoint}}
		if err := c.Validate(); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// TestChurnOverDeaths: load balancers change all the time while the server is killed again and again. In the end each
// is as it was wished last, and there is no row too many.
func TestChurnOverDeaths(t *testing.T) {
	r := newRig(t)
	g := r.group()
	const balancers, changes = 40, 25
	vipsOf := func(i, change int) []any {
		list := []any{vip("TCP", fmt.Sprint("10.0.0.", i+1), 80, 0, backend("10.1.0.1", int64(change+1)))}
		if change%2 == 0 { // rows come and go, too
			list = append(list, vip("UDP", fmt.Sprint("10.0.0.", i+1), 53, 0, backend("10.1.0.1", int64(change+1))))
		}
		return list
	}
	insist := func(do func() error) { // as the loop does
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			err := do()
			unavailable, gone := (*ovn.UnavailableError)(nil), (*ovn.GoneError)(nil)
			if err == nil {
				return
			}
			if !errors.As(err, &unavailable) && !errors.As(err, &gone) || time.Now().After(end) {
				t.Error(err)
				return
			}
		}
	}
	var wg sync.WaitGroup
	for i := range balancers {
		wg.Go(func() {
			id := identity("service-proxy", fmt.Sprint("u", i), "lb")
			for change := range changes {
				insist(func() error {
					_, err := r.Create(t.Context(), kindBalancer, id,
						map[string]any{"name": "web", "group_id": g, "vips": vipsOf(i, change)})
					return err
				})
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	deaths := 0
	for alive := true; alive; {
		select {
		case <-done:
			alive = false
		case <-time.After(30 * time.Millisecond):
			if deaths < 8 {
				r.server.Kill()
				if err := r.server.Run(t.Context()); err != nil {
					t.Error(err)
				}
				deaths++
			}
		}
	}
	if deaths == 0 {
		t.Error("it was over before the server died once")
	}
	r.until("it is connected", func() bool { return r.Status().Connected })
	list, err := r.List(kindBalancer)
	if err != nil || len(list) != balancers {
		t.Fatalf("%d load balancers, error %v", len(list), err)
	}
	for _, o := range list {
		var i int
		if _, err := fmt.Sscanf(o.Identity.Owner.UID, "u%d", &i); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(vipsOf(i, changes-1), o.Attrs["vips"]); diff != "" {
			t.Errorf("%s: %s", o.ID, diff)
		}
	}
	if rows := r.column("Load_Balancer", "name"); len(rows) != 2*balancers {
		t.Errorf("%d rows, want %d", len(rows), 2*balancers)
	}
}
