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

// bare makes the ports of all pods of some namespaces and annotates the pods, with nothing in between: it is what this Neutron can
// do at most. The ports have the attributes that Raven's have, and as many tags.
func bare(t *testing.T, url string, names []string, batch, workers int) {
	t.Helper()
	client, err := connect(t.Context(), "e2e")
	if err != nil {
		t.Fatal(err)
	}
	client.client.Endpoint, client.client.ResourceBase = url+"/", url+"/v2.0/"
	var all []thing
	var owners []*unstructured.Unstructured
	var subnets []string
	for _, namespace := range names {
		network := annotated(t, namespace, networkAnnotation).str("id")
		subnet, group := annotated(t, namespace, subnetAnnotation), groupOf(t, namespace)
		text, err := json.Marshal(subnet)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			tags := []string{bareTag, "raven:owner=" + string(pod.GetUID()), "raven:name=port", "raven:policy=delete"}
			all = append(all, thing{
				"network_id": network, "name": pod.GetName(), "device_id": pod.GetUID(), "device_owner": "compute:kuryr",
				"security_groups": []string{group}, "fixed_ips": []thing{{"subnet_id": subnet.str("id")}}, "mac_address": randomMAC(),
				"tags": tags, "description": strings.Join(tags, " "),
			})
			owners, subnets = append(owners, pod), append(subnets, string(text))
		}
	}
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(workers)
	for from := 0; from < len(all); from += batch {
		to := min(from+batch, len(all))
		g.Go(func() error {
			out, err := client.call(ctx, http.MethodPost, "ports", thing{"ports": all[from:to]})
			if err != nil {
				return err
			}
			return annotate(ctx, out.things("ports"), owners[from:to], subnets[from:to])
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// annotate writes the answers of a batch to the pods, all at once.
func annotate(ctx context.Context, ports []thing, owners []*unstructured.Unstructured, subnets []string) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, port := range ports {
		g.Go(func() error {
			text, err := json.Marshal(port)
			if err != nil {
				return err
			}
			patch, err := json.Marshal(thing{"metadata": thing{"annotations": thing{portAnnotation: string(text), subnetAnnotation: subnets[i]}}})
			if err != nil {
				return err
			}
			_, err = pods(owners[i].GetNamespace()).Patch(ctx, owners[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
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
		ports, err := world.cloud.list(ctx, "ports", "fields=id&tags="+bareTag+"&network_id="+annotated(t, namespace, networkAnnotation).str("id"))
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
