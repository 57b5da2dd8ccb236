// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"encoding/json"
	"maps"
	"sort"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// item is one version of one stored object. It never changes once it is committed, so that readers need no lock.
type item struct {
	namespace, name, uid string
	version              uint64
	object               map[string]any // without metadata.managedFields
	managed              *managed       // nil where no client has applied yet

	once sync.Once
	raw  []byte
}

func (it *item) key() string { return objectKey(it.namespace, it.name) }

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// bytes is the object as JSON in its stored form, encoded once.
func (it *item) bytes() []byte {
	it.once.Do(func() { it.raw = encodeObject(it.object, it.managed) })
	return it.raw
}

func encodeObject(object map[string]any, m *managed) []byte {
	if m != nil {
		object = maps.Clone(object)
		meta := maps.Clone(metadata(object))
		meta["managedFields"] = m.entries()
		object["metadata"] = meta
	}
	return encodeJSON(object)
}

// encodeJSON never fails for what the store holds: it came from JSON.
func encodeJSON(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return []byte(strconv.Quote("not encodable: " + err.Error()))
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}

// event is one entry of a resource's history. Of a deletion, object is the last state with the deletion's version.
type event struct {
	version    uint64
	kind       eventType
	item, prev *item
}

type eventType string

const (
	added    eventType = "ADDED"
	modified eventType = "MODIFIED"
	deleted  eventType = "DELETED"
	bookmark eventType = "BOOKMARK"
	failed   eventType = "ERROR"
)

// change is what a write makes of an object.
type change struct {
	object  map[string]any // private to the change until it is committed
	managed *managed
	remove  bool
}

// mutate runs one optimistic write: decide sees the present item (nil: none) and returns the change (nil: nothing to
// do); it runs again when another write came between. It returns the item after the write, or the removed one.
func (a *API) mutate(
	res *resource, namespace, name string, dry bool, decide func(*item) (*change, error),
) (*item, bool, error) {
	key := objectKey(namespace, name)
	for {
		a.mu.RLock()
		current := res.objects[key]
		a.mu.RUnlock()
		c, err := decide(current)
		if err != nil || c == nil {
			return current, false, err
		}
		next := &item{namespace: namespace, name: name, object: c.object, managed: c.managed}
		next.uid, _ = metadata(c.object)["uid"].(string)
		if dry {
			if current != nil {
				next.version = current.version
			}
			return next, c.remove, nil
		}
		a.mu.Lock()
		if res.objects[key] != current {
			a.mu.Unlock()
			continue
		}
		if current == nil {
			if err := a.namespaceOpenLocked(res, namespace, name); err != nil {
				a.mu.Unlock()
				return nil, false, err
			}
		}
		ev := a.commitLocked(res, current, next, c.remove)
		a.mu.Unlock()
		a.committed(res, ev)
		return next, c.remove, nil
	}
}

// commitLocked gives next its version, stores or removes it, and wakes the watchers.
func (a *API) commitLocked(res *resource, current, next *item, remove bool) event {
	a.version++
	next.version = a.version
	metadata(next.object)["resourceVersion"] = strconv.FormatUint(a.version, 10)
	ev := event{version: a.version, kind: modified, item: next, prev: current}
	switch {
	case remove:
		ev.kind = deleted
		delete(res.objects, next.key())
	case current == nil:
		ev.kind = added
		res.objects[next.key()] = next
	default:
		res.objects[next.key()] = next
	}
	a.appendLocked(res, ev)
	return ev
}

func (a *API) appendLocked(res *resource, ev event) {
	res.log = append(res.log, ev)
	if window := a.options.History; len(res.log) > window+window/4+16 {
		drop := len(res.log) - window
		res.trimmed = res.log[drop-1].version
		res.floor = max(res.floor, res.trimmed)
		res.log = append(make([]event, 0, window+window/2), res.log[drop:]...)
	}
	for w := range res.watchers {
		w.poke()
	}
}

// sinceLocked returns the events after a version; ok is false where some of them are forgotten.
func (res *resource) sinceLocked(version uint64) (events []event, ok bool) {
	if version < res.trimmed {
		return nil, false
	}
	i := sort.Search(len(res.log), func(i int) bool { return res.log[i].version > version })
	return res.log[i:len(res.log):len(res.log)], true
}

// namespaceOpenLocked refuses a new object in a namespace that does not exist or is on its way out.
func (a *API) namespaceOpenLocked(res *resource, namespace, name string) error {
	if !res.kind.Namespaced {
		return nil
	}
	ns := a.resources[namespaces()].objects[namespace]
	if ns == nil {
		if a.options.LooseNamespaces {
			return nil
		}
		return apierrors.NewNotFound(namespaces(), namespace)
	}
	if metadata(ns.object)["deletionTimestamp"] != nil {
		return terminating(res.kind.Resource(), namespace, name)
	}
	return nil
}

// snapshotLocked returns the objects of a namespace ("": all), ordered by key, as they were at a version (0: now); ok
// is false where the history no longer reaches back that far.
func (res *resource) snapshotLocked(namespace string, at uint64) (items []*item, ok bool) {
	var undo map[string]*item
	if at != 0 {
		later, known := res.sinceLocked(at)
		if !known || at < res.floor {
			return nil, false
		}
		undo = make(map[string]*item, len(later))
		for i := len(later) - 1; i >= 0; i-- {
			undo[later[i].item.key()] = later[i].prev
		}
	}
	items = make([]*item, 0, len(res.objects))
	for key, it := range res.objects {
		if _, changed := undo[key]; !changed && (namespace == "" || it.namespace == namespace) {
			items = append(items, it)
		}
	}
	for _, it := range undo {
		if it != nil && (namespace == "" || it.namespace == namespace) {
			items = append(items, it)
		}
	}
	sort.Slice(items, func(i, j int) bool {
		if items[i].namespace != items[j].namespace {
			return items[i].namespace < items[j].namespace
		}
		return items[i].name < items[j].name
	})
	return items, true
}

// metadata returns an object's metadata, made when it is missing.
func metadata(object map[string]any) map[string]any {
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	return meta
}

// text returns a string below an object, or "".
func text(object map[string]any, path ...string) string {
	for _, step := range path[:len(path)-1] {
		object, _ = object[step].(map[string]any)
	}
	s, _ := object[path[len(path)-1]].(string)
	return s
}

// writable is a copy of an object whose top level and metadata may be changed.
func writable(object map[string]any) map[string]any {
	object = maps.Clone(object)
	object["metadata"] = maps.Clone(metadata(object))
	return object
}

func (a *API) now() string { return a.options.Clock.Now().UTC().Format(time.RFC3339) }
