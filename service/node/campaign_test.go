// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/test/harness"
)

// TestCampaignStoppedInTheMiddle: the daemon ends, the plugin is killed, or Open vSwitch's database is, in the middle
// of ADD and DEL, again and again. After DEL, which the kubelet repeats until it succeeds, no link and no row is left,
// and no pod ever has another one's port.
func TestCampaignStoppedInTheMiddle(t *testing.T) {
	harness.Campaign(t)
	r := started(t)
	const rounds, pods = 100, 4
	var objects []object
	for i := range pods {
		pod := r.pod(fmt.Sprintf("p%d", i), nil)
		r.attach(pod, i+1)
		objects = append(objects, pod)
	}
	for round := range rounds {
		var work sync.WaitGroup
		boxes := make([]sandboxOfTest, pods)
		for i := range pods {
			boxes[i] = r.box(fmt.Sprintf("s%d-%d", round, i))
		}
		ctx, killed := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(40))*time.Millisecond)
		for i, pod := range objects {
			work.Go(func() {
				asking := context.Background()
				if i == 0 {
					asking = ctx // this plugin is killed
				}
				if _, err := r.callWithin(asking, boxes[i].request(cniapi.Add, pod)); err == nil && i%2 == 1 {
					_, _ = r.call(boxes[i].request(cniapi.Del, pod)) // whether it succeeds is seen below
				}
			})
		}
		<-ctx.Done()
		killed()
		if round%3 == 2 {
			r.controller.Close()
			r.server.Kill()
			r.must(r.server.Run(t.Context()))
			r.control()
		} else {
			r.stop(r.node)
		}
		work.Wait()
		if round%3 != 2 {
			r.start()
		}
		for number, row := range r.rows() {
			if owner := row.ExternalIDs["raven-pod"]; owner == "" || number != portOfPod(owner) {
				t.Errorf("round %d: %s has port %s", round, owner, number)
			}
		}
		r.until("the daemon to be ready", func() bool { return r.node.unready() == nil })
		for i, pod := range objects {
			r.until("DEL to succeed", func() bool {
				_, err := r.call(boxes[i].request(cniapi.Del, pod))
				return err == nil
			})
		}
		if rows := r.rows(); len(rows) > 0 {
			t.Fatalf("round %d: rows are left: %v", round, rows)
		}
		links, err := r.node.links.ours()
		r.must(err)
		if len(links) > 0 {
			t.Fatalf("round %d: links are left: %v", round, links)
		}
	}
}

// portOfPod is the port of default/p<i>.
func portOfPod(pod string) string {
	var number int
	if _, err := fmt.Sscanf(pod, "default/p%d", &number); err != nil {
		return ""
	}
	return portID(number + 1)
}
