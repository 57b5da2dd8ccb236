// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/service/state"
)

// TestPartsInError: all that are in ERROR are made anew in one round, which counts once; what is changed beside them
// does not count.
func TestPartsInError(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	shop := func(members int) served { return served{ports: []int64{80, 443, 8080}, members: members} }
	a := script("a", always(shop(1).set()))
	r := w.start(with(a).configured(func(c *config) {
		quick(c)
		c.DriftInterval = 50 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.settled(1)
	breaks := func(names ...string) map[string]string {
		t.Helper()
		old := map[string]string{}
		for _, name := range names {
			old[name] = text(w.one("pool", name), "id")
			if err := w.cloud.SetPartError("pool", old[name]); err != nil {
				t.Fatal(err)
			}
		}
		return old
	}
	old := breaks("shop:TCP:80", "shop:TCP:443")
	w.eventually("both are made anew", func() (bool, string) {
		for name, id := range old {
			found := w.named("pool", name)
			if len(found) != 1 || found[0]["id"] == id || found[0]["provisioning_status"] != "ACTIVE" {
				return false, w.dump()
			}
		}
		return len(w.members("shop:TCP:80"))+len(w.members("shop:TCP:443")) == 2, w.dump()
	})
	r.settled(1)
	// One of them again: now it rests, and is told of.
	breaks("shop:TCP:80")
	w.drifts(2)
	said := func() string {
		list, err := w.kube.List(events(), "default")
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(list)
	}
	w.eventually("an Event", func() (bool, string) { return strings.Contains(said(), "1 times"), said() })
	w.cloud.ResetLog()
	for n := 2; n <= 4; n++ {
		a.now(always(shop(n).set()))
		w.touchMap("x", n)
		w.eventually("members", func() (bool, string) { return len(w.members("shop:TCP:8080")) == n, w.dump() })
	}
	r.stands("a", "x", state.Waiting, `pool "shop:TCP:80", which is in ERROR`)
	w.drifts(2)
	if writes := w.lbWrites(); slices.ContainsFunc(writes, func(s string) bool { return s != "PUT member_batch 202" }) {
		t.Errorf("it does not rest: %v", writes)
	}
	// The third one has not been repaired in this round.
	old = breaks("shop:TCP:8080")
	w.eventually("it is made anew", func() (bool, string) {
		found := w.named("pool", "shop:TCP:8080")
		return len(found) == 1 && found[0]["id"] != old["shop:TCP:8080"] && len(w.members("shop:TCP:8080")) == 4, w.dump()
	})
	if text := said(); strings.Contains(text, "2 times") || strings.Contains(text, "3 times") {
		t.Errorf("more is counted than one round: %s", text)
	}
}
