// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// Outputs are what an owner's source object should carry.
type Outputs struct {
	Annotations map[string]string
	Labels      map[string]string
	// Ingress are the addresses of status.loadBalancer by key.
	Ingress map[string]string
	// Missing says, for people, what cannot be written yet. Partial says that there is something of which the rest has
	// to wait, since it is under way.
	Missing []string
	Partial bool
	// Left are those of which it is not known when they can be written, if ever: what is written of them stays written.
	Left []drivers.Output
	// Contested says what another driver writes on the object as well.
	Contested []string
	// Unread are resources that a document needs and that were not read yet.
	Unread []ResourceKey
}

// Outputs works out what an object should carry.
func (tx *Tx) Outputs(w *Want, o *Object) Outputs {
	out := Outputs{Annotations: map[string]string{}, Labels: map[string]string{}, Ingress: map[string]string{}}
	resolve := tx.Resolve(w)
	if out.Contested = tx.Contested(o); len(out.Contested) > 0 {
		out.Partial = true // nothing is written on the object
	}
	for _, output := range o.Set.Outputs {
		text, ok := output.Text.Literal, true
		var ref *drivers.Ref
		switch {
		case output.Document != nil:
			ref = output.Document
			text, ok = tx.document(w, *ref, &out)
		case output.Text.Ref != nil:
			ref = output.Text.Ref
			var v any
			if v, ok = resolve(*ref); ok {
				text = fmt.Sprint(v)
			}
		}
		if !ok {
			out.Missing = append(out.Missing, fmt.Sprintf("%s %s waits for the %s", output.Kind, output.Key, ref))
			if w.Open(*ref) {
				out.Left = append(out.Left, output)
			} else {
				out.Partial = true
			}
			continue
		}
		switch output.Kind {
		case drivers.Label:
			out.Labels[output.Key] = text
		case drivers.Ingress:
			out.Ingress[output.Key] = text
		case drivers.Annotation:
			out.Annotations[output.Key] = text
		}
	}
	return out
}

// Open says whether a reference leads to what was named and is not known, or to what is undecided.
func (w *Want) Open(ref drivers.Ref) bool {
	_, lookup := w.lookups[ref.Name]
	return ref.Role == nil && (lookup || slices.Contains(w.Set.Undecided, ref.Name))
}

// Keep adds what is written already of that which is left as it is. It says whether the status is.
func (out *Outputs) Keep(meta watch.Meta, manager string) (status bool) {
	owned := meta.Owned[manager]
	for _, output := range out.Left {
		switch output.Kind {
		case drivers.Ingress:
			status = true
		case drivers.Annotation:
			if slices.Contains(owned.Annotations, output.Key) {
				out.Annotations[output.Key] = meta.Annotations[output.Key]
			}
		case drivers.Label:
			if slices.Contains(owned.Labels, output.Key) {
				out.Labels[output.Key] = meta.Labels[output.Key]
			}
		}
	}
	return status
}

// document renders the JSON document of a resource.
func (tx *Tx) document(w *Want, ref drivers.Ref, out *Outputs) (string, bool) {
	o, ok := tx.Referred(w, ref)
	if !ok {
		return "", false
	}
	var doc any = drivers.Document(o.Kind, o.Attrs)
	if b := tx.byKind[o.Kind]; b != nil && b.Document != nil {
		composed, missing, handled := b.Document(tx, o, ref.Attribute)
		out.Unread = append(out.Unread, missing...)
		switch {
		case handled && composed == nil:
			return "", false
		case handled:
			doc = composed
		}
	}
	text, err := json.Marshal(doc)
	return string(text), err == nil
}

// Read returns a resource of the cluster's, or one that was read for a document.
func (tx *Tx) Read(key ResourceKey) (plan.Observed, bool) {
	if o, ok := tx.Cache.Get(key.Kind, key.ID); ok {
		return o, true
	}
	o, ok := tx.foreign[key]
	return o, ok
}

// SetRead notes a resource that is not the cluster's, and that a document needs.
func (tx *LoopTx) SetRead(key ResourceKey, o plan.Observed) { tx.foreign[key] = o }

// ForgetRead has resources that are not the cluster's be read again.
func (tx *LoopTx) ForgetRead() { clear(tx.foreign) }

// Addresses are those of status.loadBalancer in the order of their keys, each once.
func (out Outputs) Addresses() []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(out.Ingress)) {
		if !slices.Contains(list, out.Ingress[key]) {
			list = append(list, out.Ingress[key])
		}
	}
	return list
}

// Hash tells outputs apart.
func (out Outputs) Hash() uint64 {
	h := fnv.New64a()
	text, err := json.Marshal([]any{out.Annotations, out.Labels, out.Ingress})
	if err == nil {
		_, _ = h.Write(text)
	}
	return h.Sum64()
}
