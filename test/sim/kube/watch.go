// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What a watcher can be told beside its events.
const (
	tellBookmark = 1 << iota
	tellExpired
	tellEOF
	tellCut
)

// watcher is one open watch. It owns no queue: it reads the resource's history from its position on.
type watcher struct {
	wake chan struct{}
	told atomic.Int32

	res       *resource
	format    format
	selector  selector
	position  uint64 // every event up to here was sent or skipped
	bookmarks bool
	initial   []*item
	endMark   bool // mark the end of the initial events
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) tell(what int32) {
	w.told.Or(what)
	w.poke()
}

// serveWatch answers a watch request until the client, the timeout or an order ends it.
func (a *API) serveWatch(c *call) error {
	w, err := a.openWatch(c)
	if err != nil {
		return err
	}
	defer a.closeWatch(w)
	ctx, cancel := context.WithCancel(c.request.Context())
	defer cancel()
	stop := context.AfterFunc(a.ctx, cancel)
	defer stop()
	c.Header().Set("Content-Type", "application/json")
	c.WriteHeader(http.StatusOK)
	controller := http.NewResponseController(c.ResponseWriter)
	_ = controller.Flush()
	s := stream{w: w, out: c.ResponseWriter, flush: controller.Flush}
	s.run(ctx, a, watchTimeout(c))
	return nil
}

func watchTimeout(c *call) time.Duration {
	seconds, err := strconv.Atoi(c.query.Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		return 40 * time.Minute
	}
	return time.Duration(seconds) * time.Second
}

// openWatch finds the place in history that a watch begins at.
func (a *API) openWatch(c *call) (*watcher, error) {
	s, err := selectorOf(c.view, c.namespace, c.name, c.query)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		wake: make(chan struct{}, 1), res: c.view.res, format: c.format, selector: s,
		bookmarks: truthy(c.query.Get("allowWatchBookmarks")),
	}
	at := uint64(0)
	if version := c.query.Get("resourceVersion"); version != "" {
		if at, err = parseVersion(version); err != nil {
			return nil, err
		}
	}
	asked := c.query.Has("sendInitialEvents")
	if err := a.checkInitialEvents(c, asked); err != nil {
		return nil, err
	}
	all := truthy(c.query.Get("sendInitialEvents"))
	a.mu.Lock()
	defer a.mu.Unlock()
	w.position = at
	switch {
	case all && at > a.version:
		return nil, tooLarge(at, a.version)
	case all || at == 0:
		if all || !asked {
			w.initial, _ = w.res.snapshotLocked(s.namespace, 0)
		}
		w.position = a.version
		w.endMark = all && w.bookmarks
	case at < w.res.floor:
		if a.options.GoneStatus {
			return nil, expired(at, w.res.floor)
		}
		w.told.Store(tellExpired)
	}
	w.res.watchers[w] = struct{}{}
	return w, nil
}

// checkInitialEvents applies the rules of list options for watches.
func (a *API) checkInitialEvents(c *call, asked bool) error {
	match := c.query.Get("resourceVersionMatch")
	switch {
	case asked && a.options.NoWatchList:
		return invalid(c.view.res, "", "sendInitialEvents",
			"Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
	case asked && match != string(metav1.ResourceVersionMatchNotOlderThan):
		return invalid(c.view.res, "", "resourceVersionMatch",
			`Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan`)
	case !asked && match != "":
		return invalid(c.view.res, "", "resourceVersionMatch",
			"Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	}
	return nil
}

func (a *API) closeWatch(w *watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(w.res.watchers, w)
}

// stream writes one watch's events.
type stream struct {
	w      *watcher
	out    http.ResponseWriter
	flush  func() error
	buffer bytes.Buffer
}

func (s *stream) run(ctx context.Context, a *API, timeout time.Duration) {
	w := s.w
	for _, it := range w.initial {
		if w.selector.matches(it) {
			s.put(added, w.format.object(it))
		}
	}
	w.initial = nil
	if w.endMark {
		s.bookmark(w.position, true)
	}
	if s.send() != nil {
		return
	}
	end := a.options.Clock.NewTimer(timeout)
	defer end.Stop()
	ticker := a.options.Clock.NewTicker(a.options.BookmarkInterval)
	defer ticker.Stop()
	for {
		if !s.step(a) || s.send() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-end.C():
			s.caughtUp(a)
			_ = s.send()
			return
		case <-ticker.C():
			w.tell(tellBookmark)
		case <-w.wake:
		}
	}
}

// step buffers what there is to send now; false ends the stream.
func (s *stream) step(a *API) bool {
	w := s.w
	told := w.told.Swap(0)
	if told&tellExpired != 0 {
		a.mu.RLock()
		floor := w.res.floor
		a.mu.RUnlock()
		s.put(failed, encodeJSON(statusOf(expired(w.position, floor))))
		_ = s.send()
		return false
	}
	a.mu.RLock()
	events, ok := w.res.sinceLocked(w.position)
	now := a.version
	a.mu.RUnlock()
	if !ok || len(events) > a.options.WatchBuffer {
		return false // too slow: a real server ends the stream without a word
	}
	for _, ev := range events {
		s.event(ev)
		if s.buffer.Len() > 1<<16 && s.send() != nil {
			return false
		}
	}
	w.position = max(w.position, now)
	if told&tellBookmark != 0 {
		s.bookmark(w.position, false)
	}
	if told&tellCut != 0 {
		_ = s.send()
		_, _ = s.out.Write([]byte(`{"type":"MODIFIED","object":{"kind":"`))
		_ = s.flush()
		panic(http.ErrAbortHandler)
	}
	if told&tellEOF != 0 {
		_ = s.send()
		return false
	}
	return true
}

// caughtUp ends a stream that ran out of time with what it still owes and a bookmark.
func (s *stream) caughtUp(a *API) {
	s.w.tell(tellBookmark)
	s.step(a)
}

// event buffers one event as this watch sees it: an object that begins or ceases to match is added or deleted.
func (s *stream) event(ev event) {
	w := s.w
	is := ev.kind != deleted && w.selector.matches(ev.item)
	was := ev.prev != nil && w.selector.matches(ev.prev)
	switch {
	case is && was:
		s.put(modified, w.format.object(ev.item))
	case is:
		s.put(added, w.format.object(ev.item))
	case was && ev.kind == deleted:
		s.put(deleted, w.format.object(ev.item))
	case was:
		object := writable(ev.prev.object)
		metadata(object)["resourceVersion"] = strconv.FormatUint(ev.version, 10)
		s.put(deleted,
			w.format.object(
				&item{
					namespace: ev.prev.namespace, name: ev.prev.name, uid: ev.prev.uid, version: ev.version, object: object,
					managed: ev.prev.managed,
				},
			))
	}
}

func (s *stream) bookmark(version uint64, end bool) {
	if !s.w.bookmarks {
		return
	}
	meta := map[string]any{"resourceVersion": strconv.FormatUint(version, 10), "creationTimestamp": nil}
	if end {
		meta["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	f := s.w.format
	object := map[string]any{"kind": f.view.kind.Kind, "apiVersion": f.view.GroupVersion.String(), "metadata": meta}
	switch f.mode {
	case asPartial:
		object["kind"], object["apiVersion"] = "PartialObjectMetadata", "meta.k8s.io/v1"
	case asTable:
		object = f.table(nil, map[string]any{"resourceVersion": meta["resourceVersion"]}, false)
	case asObject:
	}
	s.put(bookmark, encodeJSON(object))
}

func (s *stream) put(kind eventType, object []byte) {
	s.buffer.WriteString(`{"type":"`)
	s.buffer.WriteString(string(kind))
	s.buffer.WriteString(`","object":`)
	s.buffer.Write(object)
	s.buffer.WriteString("}\n")
}

func (s *stream) send() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	defer s.buffer.Reset()
	if _, err := s.out.Write(s.buffer.Bytes()); err != nil {
		return err
	}
	return s.flush()
}

// tellWatchers reaches the open watches of a resource ("": of all) by its plural or plural.group name.
func (a *API) tellWatchers(name string, what int32) int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	told := 0
	for gr, res := range a.resources {
		if named(gr, name) {
			for w := range res.watchers {
				w.tell(what)
				told++
			}
		}
	}
	return told
}

func named(gr schema.GroupResource, name string) bool {
	return name == "" || gr.Resource == name || gr.String() == name
}

// Cut is how CutWatches ends streams.
type Cut int

const (
	// CleanEOF ends the stream after a whole event.
	CleanEOF Cut = iota
	// MidLine breaks the connection in the middle of an event.
	MidLine
)

// CutWatches ends the open watches of a resource, such as "pods" or "leases.coordination.k8s.io" ("": of all), and
// returns how many there were.
func (a *API) CutWatches(resource string, how Cut) int {
	if how == MidLine {
		return a.tellWatchers(resource, tellCut)
	}
	return a.tellWatchers(resource, tellEOF)
}

// Bookmark sends a bookmark to the open watches of a resource ("": of all) that allow them.
func (a *API) Bookmark(resource string) { a.tellWatchers(resource, tellBookmark) }

// Compact forgets the whole history: a watch that resumes from an older version than now gets 410.
func (a *API) Compact() { a.forget("") }

// Expire forgets a resource's history ("": all), and ends its open watches with a 410 in the stream.
func (a *API) Expire(resource string) {
	a.forget(resource)
	a.tellWatchers(resource, tellExpired)
}

func (a *API) forget(resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++ // so that even the newest version seen by a client is too old
	for gr, res := range a.resources {
		if named(gr, resource) {
			res.floor = a.version
		}
	}
}
