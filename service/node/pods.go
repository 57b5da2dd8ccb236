// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/service/watch"
)

// The names of the two watches.
const (
	podWatch  = "pods"
	nodeWatch = "node"
)

// keys are the annotations that are read.
func keys() []string {
	return []string{
		contract.Port, contract.Subnet, contract.Subnets, contract.Network, contract.VersionKey, contract.PodCIDRs,
		contract.ChassisHostname, contract.ChassisID, contract.TranslatedAddresses, mirrorAnnotation, hashAnnotation,
	}
}

// objects are this node's pods, and its Node, as the API server shows them. No other object is asked for: the kubelet's
// credential suffices.
type objects struct {
	node    string
	clients watch.Clients
	manager *watch.Manager
	seen    *watch.Subscription
	changed *signal
}

func podsGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func nodesGVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
}

func newObjects(node string, config watch.Config) (*objects, error) {
	o := &objects{node: node, clients: config.Clients, manager: watch.New(config), changed: newSignal()}
	fields := make([]string, 0, len(keys()))
	for _, key := range keys() {
		fields = append(fields, "metadata.annotations['"+key+"']")
	}
	var err error
	o.seen, err = o.manager.Subscribe("raven-node", []drivers.Watch{
		{
			Name: podWatch, GVR: podsGVR(), Kind: "Pod", Source: true, Fields: fields,
			FieldSelector: "spec.nodeName=" + node,
		},
		{
			Name: nodeWatch, GVR: nodesGVR(), Kind: "Node", Source: true, Fields: fields,
			FieldSelector: "metadata.name=" + node,
		},
	}, keys(), func(watch.Key, watch.Reason) { o.changed.tell() })
	if err != nil {
		return nil, fmt.Errorf("watching the pods of node %s: %w", node, err)
	}
	return o, nil
}

// object is a pod or a node, as far as it matters here.
type object struct {
	Namespace, Name, UID string
	Annotations          map[string]string
	Deleting             bool
}

// hasUID says whether CNI's UID of a pod is that of this object. Of a static pod CNI has the kubelet's own, and the
// API server's object is its mirror, which names that.
func (o object) hasUID(uid string) bool {
	return o.UID == uid || o.Annotations[mirrorAnnotation] != "" && o.Annotations[hashAnnotation] == uid
}

// notSynced says why nothing is known of a watch; nil: it was filled once.
func (o *objects) notSynced(name string) error {
	for _, status := range o.seen.Status() {
		if status.Watch != name || status.Synced {
			continue
		}
		what := "the list of this node's pods"
		if name == nodeWatch {
			what = "its Node object"
		}
		if status.Error != "" {
			return fmt.Errorf("%s from the API server: %s", what, status.Error)
		}
		return fmt.Errorf("%s from the API server", what)
	}
	return nil
}

// pod returns a pod of this node.
func (o *objects) pod(namespace, name string) (object, bool) {
	return o.get(watch.Key{Watch: podWatch, Namespace: namespace, Name: name})
}

// movedError says that a pod is gone, or has another port, while it is plugged in.
type movedError struct{ text string }

func (m *movedError) Error() string { return m.text }

// moved says why a pod is not to be plugged into a port any more: it is gone, or has another port. Nil: nothing says
// so.
func (o *objects) moved(ref podRef, port string) error {
	_, _, state := o.seen.Get(watch.Key{Watch: podWatch, Namespace: ref.Namespace, Name: ref.Name})
	pod, there := o.pod(ref.Namespace, ref.Name)
	switch {
	case state == watch.Absent, there && !pod.hasUID(ref.UID):
		return &movedError{fmt.Sprintf("pod %s with UID %s is not on node %s any more", ref, ref.UID, o.node)}
	case !there || strings.Contains(pod.Annotations[contract.Port], port):
		return nil
	}
	if a, err := parseAttachment(pod.Annotations); err == nil && a.ownedBy(pod) == nil && a.Port != port {
		return &movedError{fmt.Sprintf("pod %s has port %s by now, in the place of %s", ref, a.Port, port)}
	}
	return nil
}

// self returns the Node.
func (o *objects) self() (object, bool) { return o.get(watch.Key{Watch: nodeWatch, Name: o.node}) }

func (o *objects) get(key watch.Key) (object, bool) {
	_, meta, state := o.seen.Get(key)
	if state != watch.Present {
		return object{}, false
	}
	return object{key.Namespace, key.Name, meta.UID, meta.Annotations, meta.Deleting}, true
}

// all returns every pod of this node; false: it is not known whether these are all.
func (o *objects) all() ([]object, bool) {
	list, complete := o.seen.Keys(podWatch)
	pods := make([]object, 0, len(list))
	for _, key := range list {
		if pod, there := o.get(key); there {
			pods = append(pods, pod)
		}
	}
	return pods, complete
}

// isGone asks the API server, past the watch, whether a pod that the kubelet knew is no more: it was there before the
// kubelet knew of it. Of a static pod, whose UID is the kubelet's own, that is not known, nor without an answer.
func (o *objects) isGone(ctx context.Context, ref podRef) bool {
	if uuid.Validate(ref.UID) != nil || !strings.Contains(ref.UID, "-") {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	list, err := o.clients.Dynamic.Resource(podsGVR()).Namespace(ref.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + o.node + ",metadata.name=" + ref.Name,
	})
	if err != nil {
		return false
	}
	for i := range list.Items {
		if string(list.Items[i].GetUID()) == ref.UID {
			return false
		}
	}
	return true
}

// goneTimeout bounds the question for a pod that the watch does not show.
const goneTimeout = 5 * time.Second

// annotate writes annotations on the Node, which this daemon owns.
func (o *objects) annotate(ctx context.Context, self object, annotations map[string]string) error {
	document := map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": self.Name, "uid": self.UID, "annotations": annotations},
	}
	body, err := encode(document)
	if err != nil {
		return err
	}
	_, err = o.clients.Dynamic.Resource(nodesGVR()).Patch(ctx, self.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "node.kuryr.org", Force: new(true)})
	if err != nil {
		return fmt.Errorf("annotating Node %s with %s: %w", self.Name,
			strings.Join(slices.Sorted(maps.Keys(annotations)), " and "), err)
	}
	return nil
}

// lastEvent returns what Raven has said of a pod last, or nothing: reading Events may not be allowed.
func (o *objects) lastEvent(ctx context.Context, namespace, uid string) string {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	list, err := o.clients.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).
		Namespace(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + uid})
	if err != nil {
		return ""
	}
	latest, said := "", ""
	for _, item := range list.Items {
		text := func(fields ...string) string {
			value, _, _ := unstructured.NestedString(item.Object, fields...) // what is no text counts as none
			return value
		}
		if when := text("lastTimestamp"); text("source", "component") == ravenComponent && when >= latest {
			latest, said = when, text("reason")+": "+text("message")
		}
	}
	return said
}

// ravenComponent is what Raven's Events are reported by.
const ravenComponent = "raven"
