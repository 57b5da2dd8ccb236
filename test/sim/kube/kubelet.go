// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Kubelet stands in for scheduler and kubelets: it gives pods a node and lets them run.
type Kubelet struct {
	// Nodes are made as Node objects and given to pods in turn. Default: node-1, node-2.
	Nodes []string
	// ScheduleDelay is the time from a pod's creation to its node, RunDelay from there to Running. Default 2 ms each.
	ScheduleDelay, RunDelay time.Duration
	// NeedPort keeps a pod pending until its port annotation is there, as a CNI plugin does; not one on its host's
	// network.
	NeedPort bool
	// PortAnnotation is where a pod's IP comes from. Default kuryr.org/neutron-port.
	PortAnnotation string
}

func (k Kubelet) withDefaults() Kubelet {
	if len(k.Nodes) == 0 {
		k.Nodes = []string{"node-1", "node-2"}
	}
	if k.ScheduleDelay <= 0 {
		k.ScheduleDelay = 2 * time.Millisecond
	}
	if k.RunDelay <= 0 {
		k.RunDelay = 2 * time.Millisecond
	}
	if k.PortAnnotation == "" {
		k.PortAnnotation = "kuryr.org/neutron-port"
	}
	return k
}

// startKubelet makes the nodes and follows the pods. It reads the history like any watcher, and relists when it lags.
func (a *API) startKubelet(k Kubelet) {
	k = k.withDefaults()
	for _, name := range k.Nodes {
		a.mustCreate(nodes(), "", map[string]any{
			"metadata": map[string]any{"name": name},
			"status": map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
				"addresses": []any{
					map[string]any{"type": "InternalIP", "address": k.nodeIP(name)},
					map[string]any{"type": "Hostname", "address": name},
				},
			},
		})
	}
	res := a.resource(pods())
	w := &watcher{wake: make(chan struct{}, 1), res: res}
	a.mu.Lock()
	res.watchers[w] = struct{}{}
	w.position = a.version
	a.mu.Unlock()
	a.tasks.Go(func() {
		defer a.closeWatch(w)
		next := 0
		for {
			for _, it := range a.kubeletWork(w) {
				a.handlePod(k, it, &next)
			}
			select {
			case <-a.ctx.Done():
				return
			case <-w.wake:
			}
		}
	})
}

// kubeletWork is what changed since the last call, or everything where that is forgotten.
func (a *API) kubeletWork(w *watcher) []*item {
	a.mu.RLock()
	defer a.mu.RUnlock()
	events, ok := w.res.sinceLocked(w.position)
	w.position = a.version
	if !ok {
		items, _ := w.res.snapshotLocked("", 0)
		return items
	}
	items := make([]*item, 0, len(events))
	for _, ev := range events {
		if ev.kind != deleted {
			items = append(items, ev.item)
		}
	}
	return items
}

func (a *API) handlePod(k Kubelet, it *item, next *int) {
	phase := text(it.object, "status", "phase")
	switch {
	case metadata(it.object)["deletionTimestamp"] != nil:
	case text(it.object, "spec", "nodeName") == "":
		node := k.Nodes[*next%len(k.Nodes)]
		*next++
		a.later(k.ScheduleDelay, func() { _ = a.bind(it.namespace, it.name, node) })
	case phase == "Pending" || phase == "":
		if !k.NeedPort || onHost(it.object) || portIPs(it.object, k.PortAnnotation) != nil {
			a.later(k.RunDelay, func() { a.runPod(k, it) })
		}
	case phase == "Running" && text(it.object, "status", "podIP") == "" && portIPs(it.object, k.PortAnnotation) != nil:
		a.runPod(k, it)
	}
}

// nodeIP is a node's address. A pod on its host's network has the same.
func (k Kubelet) nodeIP(name string) string {
	const first = 11
	return fmt.Sprintf("192.0.2.%d", first+max(0, slices.Index(k.Nodes, name)))
}

// onHost says whether a pod is on its host's network, and needs no port.
func onHost(object map[string]any) bool {
	spec, _ := object["spec"].(map[string]any)
	host, _ := spec["hostNetwork"].(bool)
	return host
}

// runPod reports a pod as running, with the addresses of its port.
func (a *API) runPod(k Kubelet, it *item) {
	_, _, _ = a.mutate(a.resource(pods()), it.namespace, it.name, false, func(current *item) (*change, error) {
		if current == nil || current.uid != it.uid || metadata(current.object)["deletionTimestamp"] != nil {
			return nil, nil //nolint:nilnil // too late
		}
		phase, ips := text(current.object, "status", "phase"), portIPs(current.object, k.PortAnnotation)
		host := k.nodeIP(text(current.object, "spec", "nodeName"))
		if onHost(current.object) {
			ips = []string{host}
		}
		if phase == "Running" && (ips == nil || text(current.object, "status", "podIP") != "") || phase == "Succeeded" ||
			phase == "Failed" {
			return nil, nil //nolint:nilnil // done already
		}
		object := writable(current.object)
		status := section(object, "status")
		status["phase"], status["hostIP"] = "Running", host
		setDefault(status, "startTime", a.now())
		status["conditions"] = []any{
			map[string]any{"type": "PodScheduled", "status": "True", "lastTransitionTime": a.now()},
			map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": a.now()},
		}
		if len(ips) > 0 {
			status["podIP"] = ips[0]
			list := make([]any, 0, len(ips))
			for _, ip := range ips {
				list = append(list, map[string]any{"ip": ip})
			}
			status["podIPs"] = list
		}
		return &change{object: object, managed: current.managed}, nil
	})
}

// portIPs reads the addresses of a port document, {"fixed_ips":[{"ip_address":…}]}, also inside {"port":…}; nil
// without one.
func portIPs(object map[string]any, annotation string) (ips []string) {
	type port struct {
		FixedIPs []struct {
			IP string `json:"ip_address"`
		} `json:"fixed_ips"`
	}
	var document struct {
		port
		Port port `json:"port"`
	}
	raw := text(object, "metadata", "annotations", annotation)
	if raw == "" || json.Unmarshal([]byte(raw), &document) != nil {
		return nil
	}
	for _, fixed := range append(document.FixedIPs, document.Port.FixedIPs...) {
		ips = append(ips, fixed.IP)
	}
	return ips
}
