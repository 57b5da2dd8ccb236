// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// bareTag marks what the bare client makes.
const bareTag = "e2e-bare"

// annotatedObject is what of an object is read here.
type annotatedObject interface {
	GetAnnotations() map[string]string
	GetUID() types.UID
}

// bareClient makes the ports of pods and annotates the pods, with nothing in between: it is what this Neutron can do
// at most. The ports have the attributes that Raven's have, and as many tags. It is ready before the first pod is
// there, and asks for ports as soon as there are pods enough of a namespace for a request; what is left at the end
// goes in smaller ones.
type bareClient struct {
	cloud *cloud
	way   way
	in    map[string]*bareNamespace
	slots chan struct{} // as many as requests may be under way
	work  *errgroup.Group
	ctx   context.Context
}

type bareNamespace struct {
	network, subnet, group, text string // text is the subnet's annotation
	waiting                      []*unstructured.Unstructured
}

func newBare(t *testing.T, url string, names []string, as way) *bareClient {
	t.Helper()
	cloud, err := connect(t.Context(), "e2e")
	if err != nil {
		t.Fatal(err)
	}
	cloud.client.Endpoint, cloud.client.ResourceBase = url+"/", url+"/v2.0/"
	b := &bareClient{cloud: cloud, way: as, in: map[string]*bareNamespace{}, slots: make(chan struct{}, as.workers)}
	b.work, b.ctx = errgroup.WithContext(t.Context())
	for _, namespace := range names {
		subnet := annotated(t, namespace, subnetAnnotation)
		text, err := json.Marshal(subnet)
		if err != nil {
			t.Fatal(err)
		}
		b.in[namespace] = &bareNamespace{
			network: annotated(t, namespace, networkAnnotation).str("id"), subnet: subnet.str("id"),
			group: groupOf(t, namespace), text: string(text),
		}
	}
	return b
}

// take takes a pod that is there. It is nobody's where Raven does the work.
func (b *bareClient) take(pod *unstructured.Unstructured) {
	if b == nil {
		return
	}
	ns := b.in[pod.GetNamespace()]
	if ns.waiting = append(ns.waiting, pod); len(ns.waiting) == b.way.batch {
		b.send(ns)
	}
}

// wait asks for what is left, and returns when all is done.
func (b *bareClient) wait(t *testing.T) {
	t.Helper()
	if b == nil {
		return
	}
	for _, ns := range b.in {
		if len(ns.waiting) > 0 {
			b.send(ns)
		}
	}
	if err := b.work.Wait(); err != nil {
		t.Fatal(err)
	}
}

// send asks for the ports of those that wait, and lets nobody wait for the answer.
func (b *bareClient) send(ns *bareNamespace) {
	owners := ns.waiting
	ns.waiting = nil
	b.work.Go(func() error {
		b.slots <- struct{}{}
		defer func() { <-b.slots }()
		var ports []thing
		for _, pod := range owners {
			tags := []string{bareTag, "raven:owner=" + string(pod.GetUID()), "raven:name=port", "raven:policy=delete"}
			ports = append(ports, thing{
				"network_id": ns.network, "name": pod.GetName(), "device_id": pod.GetUID(), "device_owner": "compute:kuryr",
				"security_groups": []string{ns.group}, "fixed_ips": []thing{{"subnet_id": ns.subnet}}, "mac_address": randomMAC(),
				"tags": tags, "description": strings.Join(tags, " "),
			})
		}
		out, err := b.cloud.call(b.ctx, http.MethodPost, "ports", thing{"ports": ports})
		if err != nil {
			return err
		}
		return annotate(b.ctx, out.things("ports"), owners, ns.text)
	})
}

// annotate writes the answers of a batch to the pods, all at once.
func annotate(ctx context.Context, ports []thing, owners []*unstructured.Unstructured, subnet string) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, port := range ports {
		g.Go(func() error {
			text, err := json.Marshal(port)
			if err != nil {
				return err
			}
			patch, err := json.Marshal(thing{
				"metadata": thing{"annotations": thing{portAnnotation: string(text), subnetAnnotation: subnet}},
			})
			if err != nil {
				return err
			}
			_, err = pods(owners[i].GetNamespace()).Patch(ctx, owners[i].GetName(), types.MergePatchType, patch,
				metav1.PatchOptions{})
			return err
		})
	}
	return g.Wait()
}

// removeBare deletes the ports that the bare client made.
func removeBare(t *testing.T, names []string) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(2)
	for _, namespace := range names {
		ports, err := world.cloud.list(ctx, "ports",
			"fields=id&tags="+bareTag+"&network_id="+annotated(t, namespace, networkAnnotation).str("id"))
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range ports {
			g.Go(func() error { return world.cloud.remove(ctx, "ports", port.str("id")) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func randomMAC() string {
	n := rand.Uint64() // only to be another one each time
	return fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", byte(n), byte(n>>8), byte(n>>16))
}
