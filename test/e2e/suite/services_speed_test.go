// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestServicesSpeed creates Services at once and measures how long it takes until their load balancers are ready with
// all parts: in Raven's hands, where it ends when the Services are annotated with load balancers that are ready; and
// in those of a bare client, which makes the same load balancers, each with one request and all at once, and looks at
// them until they are. In turns. It prints the ratio; the aim is 1.2. Nobody else looks at Octavia meanwhile: its API
// does the provider's work in the same process.
func TestServicesSpeed(t *testing.T) {
	s := balancing(t)
	services, order := 4, "rbbr"
	if world.full {
		services, order = 10, "rbbrrbbrrbbr"
	}
	createNamespace(t, "sp-a")
	webPods(t, "sp-a", "w1", "w2")
	s.settled(t)
	subnet := annotated(t, "sp-a", subnetAnnotation).str("id")
	conf := servicesConf().Set("raven", "drift_check_interval", 300).Set("raven", "sweep_interval", 60)
	took := map[rune][]float64{}
	for i, by := range order {
		if by == 'b' {
			s.stop(t)
		} else {
			s.start(t, conf)
			s.settled(t)
		}
		began := time.Now()
		var names []string
		for j := range services {
			names = append(names, fmt.Sprintf("s%d-%d", i, j))
			createService(t, "sp-a", names[j], nil)
		}
		if by == 'b' {
			bareBalancers(t, s, "sp-a", subnet, names)
		} else {
			everyService(t, "sp-a", names)
		}
		allReady(t, names)
		seconds := time.Since(began).Seconds()
		took[by] = append(took[by], seconds)
		t.Logf("round %d of %d, %s: %.1f s", i+1, len(order), map[rune]string{'r': "raven", 'b': "bare client"}[by], seconds)
		for _, name := range names {
			deleteService(t, "sp-a", name)
		}
		if by == 'b' {
			removeBareBalancers(t, names)
		} else {
			s.settled(t)
		}
	}
	s.start(t, servicesConf())
	slices.Sort(took['r'])
	slices.Sort(took['b'])
	var b strings.Builder
	fmt.Fprintf(&b, "%d Services with 2 endpoints, until all load balancers are ready\n", services)
	for _, by := range "rb" {
		of := took[by]
		fmt.Fprintf(&b, "%-12s median %5.1f s, %5.1f to %4.1f s\n", map[rune]string{'r': "raven", 'b': "bare client"}[by],
			median(of), of[0], of[len(of)-1])
	}
	fmt.Fprintf(&b, "raven takes %.2f times the provider's own time (aim: 1.2)\n", median(took['r'])/median(took['b']))
	t.Log("\n" + b.String())
	if err := os.WriteFile(filepath.Join(world.artifacts, t.Name(), "report.txt"), []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// everyService waits until Services are annotated with their load balancers, by watching.
func everyService(t *testing.T, namespace string, names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list, err := serviceObjects(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	note := func(svc *unstructured.Unstructured) {
		if slices.Contains(names, svc.GetName()) && document(svc, vipAnnotation) != nil {
			told[svc.GetName()] = true
		}
	}
	for i := range list.Items {
		note(&list.Items[i])
	}
	w, err := serviceObjects(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for len(told) < len(names) {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("%d of %d Services are annotated (%v)", len(told), len(names), ctx.Err())
		}
		if svc, ok := event.Object.(*unstructured.Unstructured); ok {
			note(svc)
		}
	}
}

// bareBalancers makes the load balancers of Services as Raven does, with names and tags as long as Raven's.
func bareBalancers(t *testing.T, s *site, namespace, members string, names []string) {
	t.Helper()
	ctx := t.Context()
	found, err := world.cloud.list(ctx, "subnets", "tags=raven:name=service-subnet&project_id="+world.cloud.project)
	found = slices.DeleteFunc(found, func(o thing) bool { return !strings.Contains(fmt.Sprint(o["tags"]), s.cluster) })
	if err != nil || len(found) != 1 {
		t.Fatalf("the service subnets are %v (%v)", found, err)
	}
	var backends []thing
	for _, pod := range []string{"w1", "w2"} {
		_, port, err := getPod(ctx, namespace, pod)
		if err != nil {
			t.Fatal(err)
		}
		backends = append(backends, thing{
			"name": namespace + "/" + pod + ":8080", "address": port.addresses()[0], "protocol_port": 8080, "subnet_id": members,
		})
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		g.Go(func() error {
			svc, err := serviceObjects(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			vip, _, _ := unstructured.NestedString(svc.Object, "spec", "clusterIP")
			tags := []string{
				bareTag, "raven:owner=service-proxy:" + string(svc.GetUID()), "raven:name=loadbalancer", "raven:policy=delete",
			}
			port := namespace + "/" + name + ":TCP:80"
			_, err = world.cloud.call(ctx, http.MethodPost, balancerKind, thing{"loadbalancer": thing{
				"name": namespace + "/" + name, "vip_subnet_id": found[0].str("id"), "vip_address": vip, "provider": "ovn",
				"tags": tags, "description": strings.Join(tags, " "),
				"listeners": []thing{{"name": port, "protocol": "TCP", "protocol_port": 80, "default_pool": thing{
					"name": port, "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT", "members": backends,
				}}},
			}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// removeBareBalancers deletes what the bare client made.
func removeBareBalancers(t *testing.T, names []string) {
	t.Helper()
	found, err := world.cloud.list(t.Context(), balancerKind, "tags="+bareTag)
	if err != nil || len(found) != len(names) {
		t.Fatalf("there are %d load balancers of the bare client, not %d (%v)", len(found), len(names), err)
	}
	if err := world.cloud.removeBalancers(t.Context(), found); err != nil {
		t.Fatal(err)
	}
}

// allReady waits until the load balancers of Services are ready with all parts.
func allReady(t *testing.T, names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ready := map[string]bool{}
	for {
		if err := lookReady(ctx, names, ready); err != nil {
			t.Fatalf("%d of %d load balancers are ready: %v", len(ready), len(names), err)
		}
		if len(ready) == len(names) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d load balancers are ready", len(ready), len(names))
		case <-time.After(300 * time.Millisecond): // every look costs the provider time
		}
	}
}

func lookReady(ctx context.Context, names []string, ready map[string]bool) error {
	all, err := world.cloud.list(ctx, balancerKind,
		"fields=id&fields=name&fields=provisioning_status&project_id="+world.cloud.project)
	if err != nil {
		return err
	}
	for _, lb := range all {
		_, name, _ := strings.Cut(lb.str("name"), "/")
		if ready[name] || !slices.Contains(names, name) || lb.str("provisioning_status") != "ACTIVE" {
			continue
		}
		out, err := world.cloud.call(ctx, http.MethodGet, balancerKind+"/"+lb.str("id")+"/status", nil)
		if err != nil {
			return err
		}
		switch text := fmt.Sprint(out); { // of the load balancer, its listener, its pool, two members
		case strings.Contains(text, "provisioning_status:ERROR"):
			return errors.New(text)
		case strings.Count(text, "provisioning_status:ACTIVE") == 5:
			ready[name] = true
		}
	}
	return nil
}
