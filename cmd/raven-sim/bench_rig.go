// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	apiwatch "k8s.io/apimachinery/pkg/watch"

	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// What Raven writes when it is done with a pod.
const portAnnotation = "kuryr.org/neutron-port"

// rig is the simulations and a raven, for one scenario.
type rig struct {
	bench  *bench
	stage  *stage
	daemon *daemon
	client *http.Client
	pods   *tracker
	unpods func()
	names  []string // of the namespaces
	made   int      // pods that are there
	others int      // further objects that drivers answer for
	conf   string   // further lines of kuryr.conf, from [raven] on
	still  bool     // no driver makes ports for pods
}

// setup is what a rig may be given beside a profile.
type setup struct {
	kube      simkube.Options
	providers []simcloud.Provider
	conf      string
	// open starts what else there has to be, and returns further lines of kuryr.conf. There are no pods then.
	open func(context.Context, *stage) (conf string, err error)
}

// newRig starts simulations and raven, makes namespaces and waits until they have their networks; then a first pod is
// made and removed, so that what Raven learns once (a token, what the credentials do not allow) is not counted.
func (b *bench) newRig(ctx context.Context, profile *simcloud.Profile, namespaces int) (*rig, error) {
	return b.newRigWith(ctx, profile, namespaces, setup{})
}

func (b *bench) newRigWith(ctx context.Context, profile *simcloud.Profile, namespaces int, with setup) (*rig, error) {
	s, err := newStage(ctx, "", with.kube, simcloud.Options{Profile: profile, Providers: with.providers})
	if err != nil {
		return nil, err
	}
	r := &rig{bench: b, stage: s, pods: &tracker{}, conf: with.conf}
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: posters, MaxConnsPerHost: posters}}
	if r.still = with.open != nil; r.still {
		if r.conf, err = with.open(ctx, s); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	r.unpods, err = s.kube.Follow(podsGVR(), r.pods.see) //nolint:contextcheck // close ends it
	if err == nil {
		r.daemon, err = s.startRaven(b.options.raven, r.conf)
	}
	if err == nil {
		err = r.prepare(ctx, namespaces)
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) prepare(ctx context.Context, namespaces int) error {
	began := time.Now()
	for i := range namespaces {
		name := fmt.Sprintf("team-%d", i+1)
		r.names = append(r.names, name)
		object := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
		if _, err := r.stage.kube.Create(namespacesGVR(), object); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	if err := r.settled(ctx); err != nil {
		return fmt.Errorf("waiting for the namespaces: %w", err)
	}
	r.bench.say("%d namespaces ready after %s", namespaces, time.Since(began).Round(time.Millisecond))
	if r.still {
		return nil
	}
	first, err := r.burst(ctx, "warm-up", 1)
	if err != nil {
		return err
	}
	if first.lost > 0 {
		return errors.New("the first pod got no port")
	}
	if err := r.remove(ctx, r.names[0], "warm-up-1"); err != nil {
		return err
	}
	r.stage.cloud.ResetLog()
	r.stage.kube.ResetLog()
	return nil
}

// close stops raven, then the simulations.
func (r *rig) close() error {
	var err error
	if r.daemon != nil {
		err = r.daemon.stop(r.bench.hurry)
	}
	if r.unpods != nil {
		r.unpods()
	}
	r.client.CloseIdleConnections()
	r.stage.close()
	return err
}

// settled waits until raven is done with every object.
func (r *rig) settled(ctx context.Context) error {
	last := "raven has not answered yet"
	err := r.until(ctx, 20*time.Millisecond, func() (bool, error) {
		st, err := r.daemon.status(ctx, url.Values{"kind": {"None"}})
		if err != nil {
			return false, nil //nolint:nilerr // not up yet
		}
		sum := 0
		for _, n := range st.Counts {
			sum += n
		}
		last = sumText(st.Counts)
		return st.Ready && sum == st.Counts["done"] && sum >= len(r.names)+r.made+r.others, nil
	})
	if err != nil {
		return fmt.Errorf("%w; objects: %s", err, last)
	}
	return nil
}

// until asks again and again until ok. It ends early when raven does.
func (r *rig) until(ctx context.Context, every time.Duration, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.bench.options.limit)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.daemon.Ended:
			return r.daemon.failure("raven ended by itself")
		case <-ticker.C:
		}
	}
}

// processes are raven and its drivers.
func (r *rig) processes(ctx context.Context) ([]process, error) {
	st, err := r.daemon.status(ctx, url.Values{"kind": {"None"}})
	if err != nil {
		return nil, err
	}
	list := []process{{"core", r.daemon.Cmd.Process.Pid}}
	for _, d := range st.Drivers {
		list = append(list, process{"driver " + d.Name, d.PID})
	}
	return list, nil
}

// posters is how many connections create pods at once.
const posters = 16

// burstResult is what became of a burst.
type burstResult struct {
	pods    int
	whole   time.Duration   // from the first POST to the last annotation
	posting time.Duration   // from the first POST to the last one's answer
	each    []time.Duration // per pod, sorted
	half    float64         // pods per second in the second half
	lost    int
}

// burst creates pods over HTTP, in turn in each namespace, and waits until all have their annotation. They are
// scheduled already.
func (r *rig) burst(ctx context.Context, name string, pods int) (*burstResult, error) {
	type post struct {
		key, url string
		body     []byte
	}
	posts := make(chan post, pods)
	keys := make([]string, 0, pods)
	for i := range pods {
		namespace, pod := r.names[i%len(r.names)], fmt.Sprintf("%s-%d", name, i+1)
		body, err := json.Marshal(benchPod(namespace, pod, fmt.Sprintf("node-%d", i%10+1)))
		if err != nil {
			return nil, fmt.Errorf("encoding a pod: %w", err)
		}
		p := post{namespace + "/" + pod, r.stage.kube.URL() + "/api/v1/namespaces/" + namespace + "/pods", body}
		keys = append(keys, p.key)
		posts <- p
	}
	close(posts)
	all := r.pods.expect(keys)
	failures := make(chan error, posters)
	var work sync.WaitGroup
	began := time.Now()
	for range min(posters, pods) {
		work.Go(func() {
			for p := range posts {
				r.pods.begin(p.key)
				if err := r.post(ctx, p.url, p.body); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	work.Wait()
	result := &burstResult{pods: pods, posting: time.Since(began)}
	r.made += pods
	select {
	case err := <-failures:
		return nil, fmt.Errorf("creating pods: %w", err)
	default:
	}
	late := time.NewTimer(r.bench.options.limit)
	defer late.Stop()
	select {
	case <-all:
	case <-late.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.daemon.Ended:
		return nil, r.daemon.failure("raven ended by itself")
	}
	r.pods.result(began, result)
	return result, nil
}

func (r *rig) post(ctx context.Context, target string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("POST %s: %s", target, response.Status)
	}
	return nil
}

// remove deletes a pod and waits until its port is gone.
func (r *rig) remove(ctx context.Context, namespace, name string) error {
	if err := r.stage.kube.Delete(podsGVR(), namespace, name); err != nil {
		return fmt.Errorf("deleting pod %s/%s: %w", namespace, name, err)
	}
	r.made--
	err := r.until(ctx, time.Millisecond, func() (bool, error) { return len(r.podPorts()) == r.made, nil })
	if err != nil {
		return fmt.Errorf("waiting for the port of %s/%s to go: %w", namespace, name, err)
	}
	return nil
}

// podPorts counts the ports of pods by the pod's UID.
func (r *rig) podPorts() map[string]int {
	ports := map[string]int{}
	for _, p := range r.stage.cloud.Ports() {
		if p["device_owner"] == "compute:kuryr" {
			if id, _ := p["device_id"].(string); id != "" { // otherwise it is a pool's
				ports[id]++
			}
		}
	}
	return ports
}

// benchPod is a pod as an API server holds it once it is scheduled.
func benchPod(namespace, name, node string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": name, "namespace": namespace, "generateName": "bench-7d9c5b8f4-",
			"labels": map[string]any{"app": "bench", "pod-template-hash": "7d9c5b8f4"},
		},
		"spec": map[string]any{
			"nodeName": node, "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
			"schedulerName": "default-scheduler",
			"containers": []any{map[string]any{
				"name": "main", "image": "registry.example/bench:1", "imagePullPolicy": "IfNotPresent",
				"ports":     []any{map[string]any{"containerPort": 8080, "protocol": "TCP"}},
				"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "128Mi"}},
				"volumeMounts": []any{
					map[string]any{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
				},
				"terminationMessagePolicy": "File",
			}},
			"volumes": []any{map[string]any{"name": "token", "projected": map[string]any{"defaultMode": 420, "sources": []any{
				map[string]any{"serviceAccountToken": map[string]any{"expirationSeconds": 3607, "path": "token"}},
			}}}},
			"tolerations": []any{
				map[string]any{
					"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
				},
			},
		},
	}
}

// tracker follows pods: when each was begun, and when it had its annotation.
type tracker struct {
	mu    sync.Mutex
	begun map[string]time.Time
	done  map[string]time.Time
	left  map[string]bool
	all   chan struct{}
}

// expect forgets what was, and returns a channel that is closed when all these pods have their annotation.
func (t *tracker) expect(keys []string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun, t.done, t.left = make(map[string]time.Time, len(keys)), make(map[string]time.Time,
		len(keys)), make(map[string]bool, len(keys))
	for _, key := range keys {
		t.left[key] = true
	}
	t.all = make(chan struct{})
	return t.all
}

func (t *tracker) begin(key string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun[key] = now
}

// see is called by the simulated API with every change of a pod.
func (t *tracker) see(kind apiwatch.EventType, object map[string]any) {
	meta, _ := object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if kind == apiwatch.Deleted || annotations[portAnnotation] == nil {
		return
	}
	now := time.Now()
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	t.mu.Lock()
	defer t.mu.Unlock()
	key := namespace + "/" + name
	if !t.left[key] {
		return
	}
	t.done[key] = now
	delete(t.left, key)
	if len(t.left) == 0 {
		close(t.all)
	}
}

// result fills in what the pods say.
func (t *tracker) result(began time.Time, r *burstResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.lost = len(t.left)
	var ends []time.Time
	for key, end := range t.done {
		r.each = append(r.each, end.Sub(t.begun[key]))
		ends = append(ends, end)
	}
	slices.Sort(r.each)
	slices.SortFunc(ends, time.Time.Compare)
	if len(ends) == 0 {
		return
	}
	last := ends[len(ends)-1]
	r.whole = last.Sub(began)
	if middle := ends[len(ends)/2]; last.After(middle) {
		r.half = float64(len(ends)-len(ends)/2) / last.Sub(middle).Seconds()
	}
}
