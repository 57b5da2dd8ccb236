// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// team starts a leader and one that stands by.
func (r *rig) team() (leader, other *peer) {
	r.t.Helper()
	leader = r.peer("one")
	must(r.t, "a leader", leader.leads)
	other = r.peer("two")
	must(r.t, "one that stands by", func() string { return other.follows(leader) })
	return leader, other
}

func TestTheOtherOneTakesOver(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		end   func(*peer)
		lease time.Duration
	}{
		// The Lease must expire, and be found expired.
		"killed": {func(p *peer) { p.Kill() }, leaseDuration},
		// It is released when the work has ended: it would not expire while the test waits.
		"stopped": {func(p *peer) { p.stop() }, 10 * patience},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := pair(t)
			r.conf.Set("kubernetes", "lease_duration", how.lease)
			r.bare()
			one, two := r.team()
			r.createNamespace("shop")
			r.createPod("shop", "a")
			r.awaitRest(one.raven)
			must(t, "the other one, warm", func() string { return two.follows(one) })
			// Extensions, and which drivers have security groups, are asked for before drivers are launched.
			asked := two.cloud.asked(0)
			if len(asked) != 2 || !strings.HasSuffix(asked[0], "/extensions") || lists(asked, "security-groups") != 1 ||
				len(two.cloud.changes()) != 0 {
				t.Errorf("the one that stands by asked for %v and sent %v; wanted the lists of extensions and of security "+
					"groups only", asked, two.cloud.changes())
			}
			r.kube.ResetLog()
			before := len(two.cloud.asked(0))
			r.createNamespace("blog") // the leader is at work when it goes
			r.createPod("shop", "b")
			how.end(one)
			must(t, "another leader", two.leads)
			r.createPod("blog", "c")
			r.awaitRest(two.raven)
			oneAtATime(t, one, two)
			for _, q := range r.kube.Requests() {
				if q.Verb == "list" && q.Resource != "" {
					t.Errorf("taking over listed %s", q.Path)
				}
			}
			// By identity, once when it takes over and once when the last create of the other can have taken effect; nothing
			// one by one.
			must(t, "the second list", func() string {
				if n := lists(two.cloud.asked(before), "networks"); n < 2 {
					return "there was none"
				}
				return ""
			})
			if n := lists(two.cloud.asked(before), "networks"); n > 3 {
				t.Errorf("networks were listed %d times", n)
			}
			two.stop()
		})
	}
}

// lists counts the lists of a kind; the first page of each, for they are short.
func lists(paths []string, kind string) int {
	n := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "/v2.0/"+kind) {
			n++
		}
	}
	return n
}

// The leader is cut off from the cluster while a create of its own is slow and takes effect when the other has listed
// and made its own.
func TestALeaderThatIsCutOffLeavesNoDuplicate(t *testing.T) {
	t.Parallel()
	r := pair(t)
	r.bare()
	r.conf.Set("neutron", "ambiguous_create_wait", 12).Set("neutron", "timeout", leaseDuration-100*time.Millisecond)
	one, two := r.team()
	r.awaitRest(one.raven)
	// Neutron is slow for everyone, and the first create of a network is carried out when the next leader has made its
	// own.
	inFlight, madeAgain := r.holdFirstNetwork()
	for kind, delay := range map[string]time.Duration{
		"subnet": time.Second, "port": time.Second, "security_group": 2 * time.Second,
	} {
		_, err := r.cloud.AddFault(simcloud.Rule{
			Method: http.MethodPost, Kind: kind, Action: simcloud.ActionDelay, Delay: simcloud.Duration(delay),
		})
		r.check(err)
	}
	// This one comes two seconds later, from a leader that does not know yet that it is cut off, and would outlast its
	// Lease.
	_, err := r.cloud.AddFault(simcloud.Rule{
		Method: http.MethodPost, Kind: "security_group_rule", Times: 1, Action: simcloud.ActionTimeout,
	})
	r.check(err)
	r.createNamespace("shop")
	r.createPod("shop", "a")
	await(t, "the create that takes effect late", inFlight)
	one.kube.Cut()
	must(t, "another leader", two.leads)
	led := time.Now()
	if s, err := one.status(); err != nil || s.Leader.Leading || s.Leader.Problem == "" {
		t.Errorf("the one that is cut off says %+v (%v)", s.Leader, err)
	}
	await(t, "the new leader's own", madeAgain)
	must(t, "the late create beside it", func() string {
		if n := r.networksNamed("shop"); n < 2 {
			return "there are not two networks"
		}
		return ""
	})
	r.cloud.ClearFaults()
	r.awaitRest(two.raven)
	if n := r.networksNamed("shop"); n != 1 {
		t.Errorf("namespace shop has %d networks", n)
	}
	if sent := one.cloud.sentAfter(led); len(sent) > 0 {
		t.Errorf("the one that is cut off went on: %v", sent)
	}
	oneAtATime(t, one, two)

	// It comes back, stands by, and leads again when the other goes; there is nothing left to do.
	one.kube.Restore()
	must(t, "the return of the first", func() string { return one.follows(two) })
	two.stop()
	must(t, "the first as leader", one.leads)
	must(t, "rest", func() string { return r.amiss(one.raven) })
	if sent := one.cloud.sentAfter(led); len(sent) > 0 {
		t.Errorf("the first had something to do: %v", sent)
	}
	one.stop()
}

// holdFirstNetwork lets the first create of a network wait in the cloud, whatever becomes of its sender, until a second
// one was carried out. The first channel is closed when the one is there, the second one when the other has ended.
func (r *rig) holdFirstNetwork() (inFlight, madeAgain <-chan struct{}) {
	came, made := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(made) })
	r.t.Cleanup(release)
	var creates atomic.Int32
	r.cloud.OnRequest(func(_ int, q simcloud.Request) {
		switch {
		case q.Method != http.MethodPost || q.Kind != "network":
		case q.After:
			release()
		case creates.Add(1) == 1:
			close(came)
			<-made
		}
	})
	return came, made
}

func (r *rig) networksNamed(name string) int {
	n := 0
	for _, network := range r.cloud.Networks() {
		if network["name"] == name {
			n++
		}
	}
	return n
}

// A process that was frozen for longer than its Lease must not go on with what it was doing. It is frozen while
// answers are on their way: a request that it is about to send at that instant, nothing can take back; see the second
// list.
func TestALeaderThatWasFrozenSendsNothing(t *testing.T) {
	t.Parallel()
	r := pair(t)
	r.bare()
	r.conf.Set("neutron", "timeout", leaseDuration-100*time.Millisecond)
	one, two := r.team()
	r.awaitRest(one.raven)
	answer := r.holdCreates()
	began := len(one.cloud.changes())
	for _, name := range []string{"shop", "blog", "wiki"} {
		r.createNamespace(name)
		r.createPod(name, "a")
	}
	must(t, "creates under way, and none being sent", func() string {
		sent := one.cloud.changes()[began:]
		if len(sent) == 0 || time.Since(sent[len(sent)-1].begun) < time.Second/2 || !sent[len(sent)-1].end.IsZero() {
			return "not now"
		}
		return ""
	})
	one.signal(syscall.SIGSTOP)
	must(t, "the stop of the first", func() string { return awake(one.Cmd.Process.Pid) })
	answer()
	must(t, "another leader", two.leads)
	thawed := time.Now()
	one.signal(syscall.SIGCONT)
	r.awaitRest(two.raven)
	must(t, "the first, standing by", func() string { return one.follows(two) })
	if sent := one.cloud.sentAfter(thawed); len(sent) > 0 {
		t.Errorf("the frozen leader sent: %v", sent)
	}
	one.stop()
	two.stop()
}

// holdCreates keeps creates from being answered until the returned function is called.
func (r *rig) holdCreates() (answer func()) {
	held := make(chan struct{})
	answer = sync.OnceFunc(func() { close(held) })
	r.t.Cleanup(answer)
	r.cloud.OnRequest(func(_ int, q simcloud.Request) {
		if q.Method == http.MethodPost && q.WriteN > 0 && !q.After {
			<-held
		}
	})
	return answer
}

// await waits for something that a channel tells.
func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("waiting for %s", what)
	}
}

func TestWhoLeadsIsSaid(t *testing.T) {
	t.Parallel()
	r := pair(t)
	one, two := r.team()
	r.createNamespace("shop")
	r.awaitRest(one.raven)
	for _, c := range []struct {
		p        *peer
		status   string
		ready    string
		measured string
	}{
		{
			one, `this daemon leads as \S+_\S+ for \d+s, by Lease kube-system/raven`, `ready +leader: this daemon leads`,
			`raven_leading\{.*\} 1`,
		},
		{two, `standing by as \S+: \S+_\S+ leads since`, `ready +leader: standing by`, `raven_leading\{.*\} 0`},
	} {
		for where, has := range map[string]struct {
			text    func() string
			pattern string
		}{
			"raven status": {func() string { return r.raven("status", "--address", c.p.address()).out }, c.status},
			"/readyz":      {func() string { return c.p.page("/readyz") }, c.ready}, // checked once a second
			"/metrics":     {func() string { return c.p.page("/metrics") }, c.measured},
		} {
			within(t, where+" of "+c.p.name, func() string {
				if text := has.text(); !regexp.MustCompile(has.pattern).MatchString(text) {
					return "it has nothing like " + has.pattern + ":\n" + tailOf(text)
				}
				return ""
			})
		}
	}
	if s, err := two.status(); err != nil || len(s.Objects) > 0 {
		t.Errorf("the one that stands by tells of %d objects (%v)", len(s.Objects), err)
	}
	two.stop()
	one.stop()
	lease, err := r.kube.Get(schema.GroupVersionResource{
		Group: "coordination.k8s.io", Version: "v1", Resource: "leases",
	}, "kube-system", "raven")
	spec, _ := lease["spec"].(map[string]any)
	if err != nil || spec["holderIdentity"] != "" {
		t.Errorf("after the end of all the Lease is %v (%v)", spec, err)
	}
}

func TestALeaseThatIsTooShortIsRefused(t *testing.T) {
	t.Parallel()
	r := pair(t)
	r.conf.Set("neutron", "timeout", 60) // requests end with the Lease, however long they may take
	if got := r.raven("config", "validate", "--config-file", r.configure()); got.status != 0 {
		t.Errorf("exit status %d: %s", got.status, got.out)
	}
	r.conf.Set("kubernetes", "lease_renew_deadline", 8)
	if got := r.raven("config", "validate", "--config-file", r.configure()); got.status != 1 ||
		!strings.Contains(got.out, "two would lead at once") {
		t.Errorf("exit status %d: %s", got.status, got.errors)
	}
}

// A leader that reloads gives the Lease back, and one of the two goes on.
func TestAReloadOfTheLeader(t *testing.T) {
	t.Parallel()
	r := pair(t)
	r.bare()
	one, two := r.team()
	r.createNamespace("shop")
	r.awaitRest(one.raven)
	one.signal(syscall.SIGHUP)
	must(t, "one leader, and one that stands by", func() string {
		amiss := []string{one.leads() + two.follows(one), two.leads() + one.follows(two)}
		if slices.Contains(amiss, "") {
			return ""
		}
		return strings.Join(amiss, " / ")
	})
	r.createPod("shop", "a")
	leader := one
	if two.leads() == "" {
		leader = two
	}
	r.awaitRest(leader.raven)
	oneAtATime(t, one, two)
	if _, err := os.FindProcess(one.Cmd.Process.Pid); err != nil || !one.Running() {
		t.Error("the one that was reloaded has ended")
	}
	one.stop()
	two.stop()
}
