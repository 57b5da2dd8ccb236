package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// outputs are what an owner's source object should carry.
type outputs struct {
	annotations map[string]string
	labels      map[string]string
	// ingress are the addresses of status.loadBalancer by key.
	ingress map[string]string
	// missing says, for people, what cannot be written yet. partial says that there is something of which the rest has to wait, since
	// it is under way.
	missing []string
	partial bool
	// left are those of which nobody knows when they can be written, if ever: what is written of them stays written.
	left []drivers.Output
	// contested says what another driver writes on the object as well.
	contested []string
	// unknown are subnets that a document needs and that nobody has read yet.
	unknown []string
}

// outputsOf works out an owner's outputs. The store is locked.
func (s *store) outputsOf(w *want, o *owner) outputs {
	out := outputs{annotations: map[string]string{}, labels: map[string]string{}, ingress: map[string]string{}}
	resolve := s.resolve(w)
	if out.contested = s.contested(o); len(out.contested) > 0 {
		out.partial = true // nothing is written on the object
	}
	for _, output := range o.set.Outputs {
		text, ok := output.Text.Literal, true
		var ref *drivers.Ref
		switch {
		case output.Document != nil:
			ref = output.Document
			text, ok = s.document(w, *ref, &out)
		case output.Text.Ref != nil:
			ref = output.Text.Ref
			var v any
			if v, ok = resolve(*ref); ok {
				text = fmt.Sprint(v)
			}
		}
		if !ok {
			out.missing = append(out.missing, fmt.Sprintf("%s %s waits for the %s", output.Kind, output.Key, ref))
			if w.open(*ref) {
				out.left = append(out.left, output)
			} else {
				out.partial = true
			}
			continue
		}
		switch output.Kind {
		case drivers.Label:
			out.labels[output.Key] = text
		case drivers.Ingress:
			out.ingress[output.Key] = text
		case drivers.Annotation:
			out.annotations[output.Key] = text
		}
	}
	return out
}

// open says whether a reference leads to what was named and is not known, or to what is undecided.
func (w *want) open(ref drivers.Ref) bool {
	_, lookup := w.lookups[ref.Name]
	return ref.Role == nil && (lookup || slices.Contains(w.set.Undecided, ref.Name))
}

// keep adds what is written already of that which is left as it is. It says whether the status is.
func (out *outputs) keep(meta watch.Meta, manager string) (status bool) {
	owned := meta.Owned[manager]
	for _, output := range out.left {
		switch output.Kind {
		case drivers.Ingress:
			status = true
		case drivers.Annotation:
			if slices.Contains(owned.Annotations, output.Key) {
				out.annotations[output.Key] = meta.Annotations[output.Key]
			}
		case drivers.Label:
			if slices.Contains(owned.Labels, output.Key) {
				out.labels[output.Key] = meta.Labels[output.Key]
			}
		}
	}
	return status
}

// document renders the JSON document of a resource.
func (s *store) document(w *want, ref drivers.Ref, out *outputs) (string, bool) {
	o, ok := s.referred(w, ref)
	if !ok {
		return "", false
	}
	var doc any
	switch ref.Attribute {
	case "subnet", "subnets":
		subnets, ok := s.subnetsOf(o, out)
		if !ok || len(subnets) == 0 {
			return "", false
		}
		doc = subnets
		if ref.Attribute == "subnet" {
			doc = subnets[0]
		}
	case "pools", "listeners":
		doc = drivers.PartDocuments(ref.Attribute, o.Attrs)
	case "pool":
		pools := drivers.PartDocuments("pools", o.Attrs)
		if len(pools) == 0 {
			return "", false
		}
		doc = pools[0]
	default:
		doc = drivers.Document(o.Kind, o.Attrs)
	}
	text, err := json.Marshal(doc)
	return string(text), err == nil
}

// subnetsOf returns the documents of the subnets of a port's addresses, IPv4 first.
func (s *store) subnetsOf(port plan.Observed, out *outputs) ([]any, bool) {
	list, _ := port.Attrs["fixed_ips"].([]any)
	type fixed struct{ subnet, address string }
	var all []fixed
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			subnet, _ := m["subnet_id"].(string)
			address, _ := m["ip_address"].(string)
			all = append(all, fixed{subnet, address})
		}
	}
	slices.SortStableFunc(all, func(a, b fixed) int {
		return cmp.Compare(strings.Count(a.address, ":"), strings.Count(b.address, ":"))
	})
	var docs []any
	for _, f := range all {
		o, ok := s.subnet(f.subnet)
		if !ok {
			out.unknown = append(out.unknown, f.subnet)
			continue
		}
		docs = append(docs, drivers.Document(drivers.KindSubnet, o.Attrs))
	}
	return docs, len(docs) == len(all)
}

func (s *store) subnet(id string) (plan.Observed, bool) {
	if e, ok := s.cloud.entries[resourceKey{drivers.KindSubnet, id}]; ok {
		return e.Observed, true
	}
	o, ok := s.foreign[id]
	return o, ok
}

// readForeign reads subnets that are not ours but that our ports have addresses of.
func (e *Engine) readForeign(ctx context.Context, ids []string) error {
	for _, id := range ids {
		err := e.once("subnet "+id, func() error {
			o, err := e.cloud.Get(ctx, drivers.KindSubnet, id)
			if err == nil {
				e.store.do(func() { e.store.foreign[id] = o })
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("reading subnet %s of a port's address: %w", id, err)
		}
	}
	return nil
}

// writeOutputs writes outputs where they differ from what the source object carries.
func (e *Engine) writeOutputs(ctx context.Context, w *watcher, o *owner, meta watch.Meta, out outputs) error {
	kept := out.keep(meta, w.manager)
	metadata := writeback.Differs(meta, w.manager, out.annotations, out.labels)
	addresses := out.addresses()
	status := !kept && slices.Contains(w.info.Load().Status, drivers.StatusLoadBalancer) && writeback.IngressDiffers(meta, w.manager, addresses)
	if !metadata && !status {
		return nil
	}
	hash := hashOf(out)
	var last written
	e.store.do(func() { last = o.wrote })
	if last.hash == hash && last.version == meta.ResourceVersion {
		return nil // the cache has not caught up with our own write yet
	}
	t := writeback.Target{
		GVR: o.target.watch.GVR, Kind: o.target.watch.Kind, Namespace: o.target.namespace, Name: o.target.name, UID: o.target.uid,
	}
	if metadata {
		if err := e.writeback.Apply(ctx, t, w.manager, out.annotations, out.labels); err != nil {
			return err
		}
		e.metrics.written(w.name)
	}
	if status {
		if err := e.writeback.ApplyIngress(ctx, t, w.manager, addresses); err != nil {
			return err
		}
		e.metrics.written(w.name)
	}
	e.store.do(func() { o.wrote = written{hash, meta.ResourceVersion} })
	return nil
}

// addresses are those of status.loadBalancer in the order of their keys, each once.
func (out outputs) addresses() []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(out.ingress)) {
		if !slices.Contains(list, out.ingress[key]) {
			list = append(list, out.ingress[key])
		}
	}
	return list
}

func hashOf(out outputs) uint64 {
	h := fnv.New64a()
	text, err := json.Marshal([]any{out.annotations, out.labels, out.ingress})
	if err == nil {
		_, _ = h.Write(text)
	}
	return h.Sum64()
}
