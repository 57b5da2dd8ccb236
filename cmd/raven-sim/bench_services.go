// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// The sizes of the scenarios with Services. They do not depend on --pods.
const (
	benchServices, benchEndpoints = 50, 3
	churnEndpoints, churnChanges  = 1000, 100
	churnSlices                   = 10
	// churnPause is the time between two changes of endpoints.
	churnPause = 20 * time.Millisecond
)

// benchWork is what the provider takes, whatever the number of members.
func benchWork() simcloud.Work {
	return simcloud.Work{Create: time.Second, Delete: 200 * time.Millisecond, Update: 200 * time.Millisecond}
}

const lbaasConf = "drivers = namespace, pod, lbaas\n\n[octavia_defaults]\nprovider = amphora\n"

func benchProviders() []simcloud.Provider {
	p := simcloud.Amphora(benchWork())
	p.Lanes = 0
	return []simcloud.Provider{p}
}

func slicesGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
}

// services measures many Services that come at once, for pods that run already.
//
//nolint:funlen // one measurement after another
func (b *bench) services(ctx context.Context, out *scenarioReport) (err error) {
	r, err := b.newRigWith(ctx, simcloud.None(), 10, setup{
		kube: simkube.Options{
			Kubelet: &simkube.Kubelet{NeedPort: true}, Endpoints: &simkube.EndpointController{NoEndpoints: true},
		},
		providers: benchProviders(), conf: lbaasConf,
	})
	if err != nil {
		return err
	}
	defer func() { err = closed(r, err) }()
	for i := range benchServices {
		for j := range benchEndpoints {
			pod := benchPod(r.names[i%len(r.names)], fmt.Sprintf("app%d-%d", i, j), "node-1")
			//nolint:forcetypeassert // made above
			pod["metadata"].(map[string]any)["labels"] = map[string]any{"app": fmt.Sprintf("app%d", i)}
			if _, err := r.stage.kube.Create(podsGVR(), pod); err != nil {
				return fmt.Errorf("creating a pod: %w", err)
			}
			r.made++
		}
	}
	if err := r.until(ctx, 10*time.Millisecond, func() (bool, error) { return r.running() == r.made, nil }); err != nil {
		return fmt.Errorf("waiting for the pods to run: %w", err)
	}
	if err := r.settled(ctx); err != nil {
		return fmt.Errorf("waiting for the pods: %w", err)
	}
	r.stage.cloud.ResetLog()
	r.stage.kube.ResetLog()
	began := time.Now()
	if err := r.postServices(ctx); err != nil {
		return err
	}
	want := benchServices + 1 // and that of the API server
	if err := r.until(ctx, 5*time.Millisecond, func() (bool, error) {
		return r.served(benchEndpoints) == benchServices, nil
	}); err != nil {
		return fmt.Errorf("waiting for %d load balancers with %d members each: %w", benchServices, benchEndpoints, err)
	}
	whole := time.Since(began)
	if err := r.settled(ctx); err != nil {
		return fmt.Errorf("waiting until all is done: %w", err)
	}
	b.say("%d Services served after %s", benchServices, whole.Round(time.Millisecond))
	cloud, kube := r.stage.cloud.Stats(), r.stage.kube.Stats()
	out.addTime("first POST to last load balancer ACTIVE with all members", whole, "", "")
	out.add(measure{
		Name: "as a multiple of the provider's own time", Value: whole.Seconds() / benchWork().Create.Seconds(),
		Aim: "under 1.2",
	})
	writes, reads := split(neutronCounts(cloud.Counts))
	out.add(measure{
		Name: "creates of load balancers per Service", Value: float64(cloud.Counts["POST loadbalancer"]) / benchServices,
		Aim: "at most 1",
	})
	out.add(measure{
		Name: "other writes to the cloud", Value: float64(sum(writes) - cloud.Counts["POST loadbalancer"]), Aim: "0",
		Note: sumText(writes),
	})
	out.add(measure{Name: "reads from the cloud", Value: float64(sum(reads)), Note: sumText(reads)})
	delete(kube.Counts, "create services")
	out.add(measure{Name: "Kubernetes requests", Text: sumText(kube.Counts)})
	out.add(measure{
		Name: "kuryr-kubernetes, the same", Text: "8.0 s",
		Note: "453 status patches, 300 reads, 150 member posts; as reported in the design notes, not measured here",
	})
	out.addNone("load balancers too many", r.stage.cloud.Count("loadbalancer")-want)
	return r.quiet(ctx, out)
}

// split divides counts into writes and reads.
func split(counts map[string]int) (writes, reads map[string]int) {
	writes, reads = map[string]int{}, map[string]int{}
	for key, n := range counts {
		if strings.HasPrefix(key, "GET ") {
			reads[key] = n
		} else {
			writes[key] = n
		}
	}
	return writes, reads
}

// quiet reports the requests of a while in which nothing happens.
func (r *rig) quiet(ctx context.Context, out *scenarioReport) error {
	r.stage.cloud.ResetLog()
	timer := time.NewTimer(settle)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	counts := neutronCounts(r.stage.cloud.Stats().Counts)
	out.add(measure{
		Name: fmt.Sprintf("requests to the cloud in %s of quiet", settle), Value: float64(sum(counts)), Aim: "0",
		Note: sumText(counts),
	})
	return nil
}

// running counts the pods that have an address.
func (r *rig) running() int {
	all, err := r.stage.kube.List(podsGVR(), "")
	if err != nil {
		return 0
	}
	n := 0
	for _, p := range all {
		status, _ := p["status"].(map[string]any)
		if ip, _ := status["podIP"].(string); ip != "" {
			n++
		}
	}
	return n
}

// served counts the load balancers that are ACTIVE and whose pools have so many members, all ACTIVE.
func (r *rig) served(members int) int {
	ready := map[any]int{}
	for _, m := range r.stage.cloud.Objects("member") {
		if m["provisioning_status"] == "ACTIVE" {
			ready[m["pool_id"]]++
		}
	}
	fine := map[any]bool{}
	for _, p := range r.stage.cloud.Objects("pool") {
		fine[p["loadbalancer_id"]] = ready[p["id"]] == members
	}
	n := 0
	for _, lb := range r.stage.cloud.LoadBalancers() {
		if lb["provisioning_status"] == "ACTIVE" && fine[lb["id"]] {
			n++
		}
	}
	return n
}

// postServices creates the Services over HTTP, as many clients would.
func (r *rig) postServices(ctx context.Context) error {
	failures := make([]error, benchServices)
	var work sync.WaitGroup
	for i := range benchServices {
		namespace, name := r.names[i%len(r.names)], fmt.Sprintf("app%d", i)
		work.Go(func() {
			body, err := json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": namespace},
				"spec": map[string]any{
					"selector": map[string]any{"app": name}, "ports": []any{map[string]any{"port": 80, "targetPort": 8080}},
				},
			})
			if err == nil {
				err = r.post(ctx, r.stage.kube.URL()+"/api/v1/namespaces/"+namespace+"/services", body)
			}
			failures[i] = err
		})
	}
	work.Wait()
	for _, err := range failures {
		if err != nil {
			return fmt.Errorf("creating services: %w", err)
		}
	}
	return nil
}

// churn measures one large Service whose endpoints change one after the other.
func (b *bench) churn(ctx context.Context, out *scenarioReport) (err error) {
	r, err := b.newRigWith(ctx, simcloud.None(), 1, setup{providers: benchProviders(), conf: lbaasConf})
	if err != nil {
		return err
	}
	defer func() { err = closed(r, err) }()
	c := &churning{rig: r, namespace: r.names[0]}
	began := time.Now()
	if err := c.make(); err != nil {
		return err
	}
	if err := r.until(ctx, 10*time.Millisecond, func() (bool, error) {
		return r.served(churnEndpoints) == 1, nil
	}); err != nil {
		return fmt.Errorf("waiting for the load balancer: %w", err)
	}
	out.addTime("Service to ACTIVE load balancer", time.Since(began), "",
		fmt.Sprintf("%d endpoints in %d slices", churnEndpoints, churnSlices))
	if err := r.settled(ctx); err != nil {
		return fmt.Errorf("waiting until all is done: %w", err)
	}
	first, _ := split(neutronCounts(r.stage.cloud.Stats().Counts))
	out.add(measure{Name: "writes to Octavia for that", Text: sumText(onlyOctavia(first))})
	r.stage.cloud.ResetLog()
	r.stage.kube.ResetLog()
	began = time.Now()
	for i := range churnChanges {
		if err := c.flip(i); err != nil {
			return err
		}
		timer := time.NewTimer(churnPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
	changed := time.Since(began)
	want := churnEndpoints - churnChanges // every change takes another endpoint away
	if err := r.until(ctx, 5*time.Millisecond, func() (bool, error) { return r.served(want) == 1, nil }); err != nil {
		return fmt.Errorf("waiting for %d members: %w", want, err)
	}
	whole := time.Since(began)
	if err := r.settled(ctx); err != nil {
		return fmt.Errorf("waiting until all is done: %w", err)
	}
	cloud := r.stage.cloud.Stats()
	b.say("%d changes served after %s, by %d requests", churnChanges, whole.Round(time.Millisecond),
		cloud.Counts["PUT member_batch"])
	out.addTime("first change to last one served", whole, "",
		fmt.Sprintf("%d changes, over %s", churnChanges, changed.Round(time.Millisecond)))
	writes, reads := split(neutronCounts(cloud.Counts))
	out.add(measure{
		Name: "writes to the cloud", Value: float64(sum(writes)), Aim: fmt.Sprintf("at most %d", cloud.Freed),
		Note: sumText(writes) + "; the aim is how often the load balancer became free",
	})
	out.add(measure{Name: "reads from the cloud", Value: float64(sum(reads)), Note: sumText(reads)})
	return r.quiet(ctx, out)
}

// onlyOctavia leaves Neutron out.
func onlyOctavia(counts map[string]int) map[string]int {
	out := map[string]int{}
	for key, n := range counts {
		_, kind, _ := strings.Cut(key, " ")
		if slices.Contains([]string{"loadbalancer", "listener", "pool", "member", "member_batch", "healthmonitor"}, kind) {
			out[key] = n
		}
	}
	return out
}

// churning is a Service without selector, whose slices are written by hand.
type churning struct {
	rig       *rig
	namespace string
	slices    []map[string]any
}

func (c *churning) make() error {
	const perSlice = churnEndpoints / churnSlices
	for i := range churnSlices {
		endpoints := make([]any, 0, perSlice)
		for j := range perSlice {
			endpoints = append(endpoints, map[string]any{
				"addresses":  []any{fmt.Sprintf("10.200.%d.%d", i, j+1)},
				"conditions": map[string]any{"ready": true, "serving": true},
			})
		}
		c.slices = append(c.slices, map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
			"metadata": map[string]any{
				"name": fmt.Sprintf("large-%d", i), "namespace": c.namespace,
				"labels": map[string]any{"kubernetes.io/service-name": "large"},
			},
			"ports": []any{map[string]any{"name": "", "port": int64(8080), "protocol": "TCP"}},
		})
		if _, err := c.rig.stage.kube.Create(slicesGVR(), c.slices[i]); err != nil {
			return fmt.Errorf("creating a slice: %w", err)
		}
	}
	_, err := c.rig.stage.kube.Create(servicesGVR(), map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "large", "namespace": c.namespace},
		"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80), "targetPort": int64(8080)}}},
	})
	if err != nil {
		return fmt.Errorf("creating the service: %w", err)
	}
	return nil
}

// flip turns one more endpoint unready, in the next slice.
func (c *churning) flip(i int) error {
	slice := c.slices[i%len(c.slices)]
	endpoints, _ := slice["endpoints"].([]any)
	endpoint, _ := endpoints[i/len(c.slices)].(map[string]any)
	endpoint["conditions"] = map[string]any{"ready": false, "serving": false}
	if _, err := c.rig.stage.kube.Update(slicesGVR(), slice); err != nil {
		return fmt.Errorf("changing a slice: %w", err)
	}
	return nil
}
