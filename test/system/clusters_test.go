// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// clusterID is the UID of kube-system.
func (r *rig) clusterID() string {
	r.t.Helper()
	ns, err := r.kube.Get(namespaces(), "", "kube-system")
	if err != nil {
		r.t.Fatal(err)
	}
	meta, _ := ns["metadata"].(map[string]any)
	return fmt.Sprint(meta["uid"])
}

// belongings are the lines of the cloud's dump, with every id, that carry a cluster's identity.
func belongings(cloud *simcloud.Cloud, cluster string) string {
	var lines []string
	for line := range strings.Lines(cloud.Dump(simcloud.DumpOptions{
		IDs: true, Identity: true, Addresses: true, MACs: true,
	})) {
		if strings.Contains(line, "raven:cluster="+cluster) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestTwoClustersInOneProjectTouchNothingOfEachOther(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t, simcloud.Options{})
	one, two := newRigWith(t, simOptions(), cloud), newRigWith(t, simOptions(), cloud)
	clusterOne, clusterTwo := one.clusterID(), two.clusterID()
	if clusterOne == clusterTwo {
		t.Fatal("the two clusters are one")
	}
	var ravens []*raven
	for _, r := range []*rig{one, two} {
		r.bare()
		r.conf.Set("raven", "drift_check_interval", 1)
		ravens = append(ravens, r.start())
	}
	first := workload("")[0]
	first(one)
	first(two)
	rest := func() string {
		for i, r := range []*rig{one, two} {
			if amiss := ravens[i].settled(); amiss != "" {
				return amiss
			}
			for _, pod := range []string{"shop/a", "shop/b", "shop/c", "blog/d", "blog/e"} {
				ns, name, _ := strings.Cut(pod, "/")
				if r.portOf(ns, name) == "" {
					return "pod " + pod + " names no port"
				}
			}
		}
		return ""
	}
	must(t, "both clusters at rest", rest)
	before := belongings(cloud, clusterTwo)
	if a, b := len(strings.Split(belongings(cloud, clusterOne), "\n")), len(strings.Split(before, "\n")); a != b ||
		a < 20 {
		t.Errorf("cluster one has %d resources, two has %d", a, b)
	}
	for _, pod := range []string{"a", "b", "c"} {
		if one.portOf("shop", pod) == two.portOf("shop", pod) {
			t.Errorf("pod shop/%s has one port for both clusters", pod)
		}
	}

	one.deleteNamespace("shop")
	one.deleteNamespace("blog")
	one.vanish("kube-system")
	must(t, "the end of all that cluster one had", func() string { return belongings(cloud, clusterOne) })
	must(t, "cluster two at rest", ravens[1].settled)
	if diff := harness.LineDiff(before, belongings(cloud, clusterTwo)); diff != "" {
		t.Errorf("what cluster two has was changed:\n%s", diff)
	}
	// A restart of either concludes nothing about the other.
	ravens[1].stop()
	cloud.ResetLog()
	again := two.start()
	must(t, "cluster two at rest again", again.settled)
	again.stop()
	if writes := cloud.Stats().Writes; writes != 0 {
		t.Errorf("a restart wrote %d times", writes)
	}
	if diff := harness.LineDiff(before, belongings(cloud, clusterTwo)); diff != "" {
		t.Errorf("what cluster two has was changed:\n%s", diff)
	}
	ravens[0].stop()
}
