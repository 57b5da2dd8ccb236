// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/test/sim/kube"
)

// modes are streaming lists and plain ones, and whether they are Config.ListOnly.
func modes() map[string]bool { return map[string]bool{"streaming list": false, "list only": true} }

func TestLife(t *testing.T) {
	for mode, listOnly := range modes() {
		t.Run(mode, func(t *testing.T) {
			f := setup(t, kube.Options{}, func(c *watch.Config) { c.ListOnly = listOnly })
			f.pod(t, "web", "app", "web")
			s, w := f.subscribe(t, "pod", []string{"raven/port"}, podWatch("spec.nodeName", "metadata.labels"))
			f.start(t)
			synced(t, s)
			w.await(t, "pods default/web added")
			wantLists := 0
			if listOnly {
				wantLists = 1
			}
			if n := f.asked.count("GET /api/v1/pods"); n != wantLists {
				t.Errorf("%d lists, want %d", n, wantLists)
			}

			got, meta, state := s.Get(key("web"))
			var pod corev1.Pod
			if err := got.Into(&pod); err != nil || state != watch.Present {
				t.Fatal(state, err)
			}
			if pod.Name != "web" || pod.Kind != "Pod" || pod.Labels["app"] != "web" || pod.Spec.Containers != nil ||
				meta.UID != string(pod.UID) || meta.UID == "" || meta.ResourceVersion == "" {
				t.Errorf("got %s, %+v", got.Raw, meta)
			}

			w.reset()
			f.patch(t, pods(), "web", `{"status":{"phase":"Running"}}`, "status")
			f.patch(t, pods(), "web", `{"metadata":{"annotations":{"other":"x"}}}`)
			f.patch(t, pods(), "web", `{"metadata":{"annotations":{"raven/port":"p"}}}`)
			w.await(t, "pods default/web updated")
			if diff := cmp.Diff([]string{"pods default/web updated"}, w.all()); diff != "" {
				t.Errorf("only the kept annotation wakes (-want +got):\n%s", diff)
			}
			if _, meta, _ := s.Get(key("web")); meta.Annotations["raven/port"] != "p" || len(meta.Annotations) != 1 {
				t.Errorf("annotations %v", meta.Annotations)
			}

			f.remove(t, pods(), "web")
			w.await(t, "pods default/web deleted")
			if _, _, state := s.Get(key("web")); state != watch.Absent {
				t.Errorf("state %v after deletion", state)
			}
			if keys, complete := s.Keys("pods"); len(keys) != 0 || !complete {
				t.Error(keys, complete)
			}
		})
	}
}

// TestNothingLost changes objects while watches end in every way.
func TestNothingLost(t *testing.T) {
	ends := map[string]func(*kube.API){
		"EOF":          func(a *kube.API) { a.CutWatches("", kube.CleanEOF) },
		"cut mid-line": func(a *kube.API) { a.CutWatches("", kube.MidLine) },
		"410":          func(a *kube.API) { a.Expire("") },
		"compacted":    func(a *kube.API) { a.Compact(); a.CutWatches("", kube.CleanEOF) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for mode, listOnly := range modes() {
				t.Run(mode, func(t *testing.T) {
					f := setup(t, kube.Options{}, func(c *watch.Config) { c.ListOnly = listOnly })
					s, w := f.subscribe(t, "pod", nil, podWatch("metadata.labels"))
					f.start(t)
					synced(t, s)
					f.pod(t, "gone")
					f.pod(t, "again")
					f.pod(t, "changed")
					w.await(t, "pods default/changed added")
					w.await(t, "pods default/again added")
					_, before, _ := s.Get(key("again"))

					end(f.api)
					f.remove(t, pods(), "gone")
					f.remove(t, pods(), "again")
					f.pod(t, "again")
					f.patch(t, pods(), "changed", `{"metadata":{"labels":{"a":"b"}}}`)
					end(f.api)
					f.pod(t, "new")

					w.await(t, "pods default/gone deleted")
					w.await(t, "pods default/new added")
					w.await(t, "pods default/changed updated")
					eventually(t, func() bool {
						_, now, state := s.Get(key("again"))
						return state == watch.Present && now.UID != before.UID
					}, func() any { return w.all() })
					all := w.all()
					if !slices.Contains(all, "pods default/again recreated") && !slices.Contains(all, "pods default/again deleted") {
						t.Errorf("no subscription was told of another object: %v", all)
					}
					if keys, complete := s.Keys("pods"); len(keys) != 3 || !complete {
						eventually(t, func() bool { keys, complete := s.Keys("pods"); return len(keys) == 3 && complete },
							func() any { return s.Status() })
					}
				})
			}
		})
	}
}

func TestServerWithoutStreamingLists(t *testing.T) {
	f := setup(t, kube.Options{NoWatchList: true}, nil)
	f.pod(t, "web")
	s, w := f.subscribe(t, "pod", nil, podWatch())
	f.start(t)
	synced(t, s)
	w.await(t, "pods default/web added")
	if status := s.Status()[0]; status.Error != "" || !status.Synced || status.Objects != 1 {
		t.Errorf("%+v", status)
	}
}

func TestRecreatedWithinOneList(t *testing.T) {
	f := setup(t, kube.Options{}, func(c *watch.Config) { c.ListOnly = true })
	f.pod(t, "web")
	s, w := f.subscribe(t, "pod", nil, podWatch("spec"))
	f.start(t)
	synced(t, s)
	w.await(t, "pods default/web added")
	w.reset()
	f.api.SetDeny(kube.Deny{Verbs: []string{"list", "watch"}})
	f.api.CutWatches("", kube.CleanEOF)
	eventually(t, func() bool { return s.Status()[0].Cause == watch.Forbidden }, func() any { return s.Status() })
	f.remove(t, pods(), "web")
	f.pod(t, "web")
	f.api.Compact()
	f.api.SetDeny()
	w.await(t, "pods default/web recreated")
	if diff := cmp.Diff([]string{"pods default/web recreated"}, w.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSharedInformer(t *testing.T) {
	f := setup(t, kube.Options{}, func(c *watch.Config) { c.ListOnly = true })
	f.pod(t, "web", "app", "web")
	one, w1 := f.subscribe(t, "one", nil, podWatch("spec.nodeName"))
	two, w2 := f.subscribe(t, "two", nil, podWatch("metadata.labels"))
	f.start(t)
	synced(t, one)
	synced(t, two)
	w1.await(t, "pods default/web added")
	w2.await(t, "pods default/web added")
	if n := f.asked.count("GET /api/v1/pods"); n != 1 {
		t.Errorf("%d lists for two drivers, want 1", n)
	}
	w1.reset()
	w2.reset()
	f.patch(t, pods(), "web", `{"metadata":{"labels":{"app":"other"}}}`)
	w2.await(t, "pods default/web updated")
	if all := w1.all(); len(all) != 0 {
		t.Errorf("a change outside its fields woke the other driver: %v", all)
	}
	for s, has := range map[*watch.Subscription]bool{one: false, two: true} {
		got, _, _ := s.Get(key("web"))
		if strings.Contains(string(got.Raw), "labels") != has {
			t.Errorf("not trimmed to its own fields: %s", got.Raw)
		}
	}

	t.Run("a later driver needs more", func(t *testing.T) {
		w1.reset()
		w2.reset()
		three, w3 := f.subscribe(t, "three", nil, podWatch("spec.containers"))
		synced(t, three)
		w3.await(t, "pods default/web added")
		if got, _, _ := three.Get(key("web")); !strings.Contains(string(got.Raw), `"image":"i"`) {
			t.Errorf("got %s", got.Raw)
		}
		f.patch(t, pods(), "web", `{"metadata":{"labels":{"app":"third"}}}`)
		w2.await(t, "pods default/web updated")
		if all := w1.all(); len(all) != 0 {
			t.Errorf("replacing the informer woke a driver that it does not concern: %v", all)
		}
		if n := f.asked.count("GET /api/v1/pods"); n != 2 {
			t.Errorf("%d lists, want 2", n)
		}
		eventually(t, func() bool { return len(w2.all()) == 1 }, func() any { return w2.all() })
	})
	t.Run("the last one ends it", func(t *testing.T) {
		one.Close()
		two.Close()
		w2.reset()
		f.pod(t, "late")
		if all := w2.all(); len(all) != 0 {
			t.Errorf("woken after Close: %v", all)
		}
	})
}

func TestMetadataOnly(t *testing.T) {
	for mode, listOnly := range modes() {
		t.Run(mode, func(t *testing.T) {
			f := setup(t, kube.Options{}, func(c *watch.Config) { c.ListOnly = listOnly })
			f.pod(t, "web", "app", "web")
			s, w := f.subscribe(t, "labels", nil, podWatch("metadata.labels"))
			f.start(t)
			synced(t, s)
			w.await(t, "pods default/web added")
			f.pod(t, "more", "app", "more")
			w.await(t, "pods default/more added")
			for _, name := range []string{"web", "more"} {
				got, meta, _ := s.Get(key(name))
				want := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":%q},"name":%q,"namespace":"default","uid":%q}}`,
					name, name, meta.UID)
				if diff := cmp.Diff(want, string(got.Raw)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	f := setup(t, kube.Options{}, nil)
	f.pod(t, "web")
	f.pod(t, "db")
	s, w := f.subscribe(t, "pod", nil, podWatch("spec"), serviceWatch("spec"))
	f.start(t)
	synced(t, s)
	w.await(t, "pods default/web added")
	w.await(t, "pods default/db added")
	byName := drivers.Need{Watch: "services", Namespace: "default", Name: "front"}
	byLabel := drivers.Need{Watch: "services", Namespace: "default", Selector: "app=web"}
	s.Remember(key("web"), []drivers.Need{byName})
	s.Remember(key("db"), []drivers.Need{byLabel})
	web, db := "pods default/web need-changed", "pods default/db need-changed"

	if got, state := s.Answer(byName); got != nil || state != watch.Absent {
		t.Error(got, state)
	}
	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{
			"created, not selected", func() { f.create(t, services(), object(services(), "Service", "default", "front")) },
			[]string{web},
		},
		{"label outside of the fields makes it selected", func() {
			f.patch(t, services(), "front", `{"metadata":{"labels":{"app":"web"}}}`)
		}, []string{db}},
		{"fields", func() { f.patch(t, services(), "front", `{"spec":{"externalName":"x"}}`) }, []string{db, web}},
		{"label ceases", func() { f.patch(t, services(), "front", `{"metadata":{"labels":null}}`) }, []string{db}},
		{"deleted", func() { f.remove(t, services(), "front") }, []string{web}},
	}
	for _, step := range steps {
		w.reset()
		step.do()
		eventually(t, func() bool { return len(w.all()) >= len(step.want) }, func() any { return []any{step.name, w.all()} })
		got := w.all()
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}

	f.create(t, services(), object(services(), "Service", "default", "b", "app", "web"))
	f.create(t, services(), object(services(), "Service", "default", "a", "app", "web"))
	eventually(t, func() bool { got, _ := s.Answer(byLabel); return len(got) == 2 }, func() any { return s.Status() })
	got, state := s.Answer(byLabel)
	first, _ := got[0].Meta()
	if state != watch.Present || first.Name != "a" {
		t.Errorf("%v, first %q: not in order", state, first.Name)
	}

	s.Remember(key("web"), nil)
	s.Remember(key("db"), nil)
	w.reset()
	f.create(t, services(), object(services(), "Service", "default", "front", "app", "web"))
	eventually(t, func() bool { _, state := s.Answer(byName); return state == watch.Present }, func() any {
		return s.Status()
	})
	if all := w.all(); len(all) != 0 {
		t.Errorf("woken for forgotten needs: %v", all)
	}
	if _, state := s.Answer(drivers.Need{Watch: "services", Selector: "a in"}); state != watch.Unknown {
		t.Errorf("a selector that cannot be read is %v", state)
	}
	if _, state := s.Answer(drivers.Need{Watch: "other", Name: "x"}); state != watch.Unknown {
		t.Errorf("a watch that was not declared is %v", state)
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		options kube.Options
		prepare func(*fixture)
		watch   drivers.Watch
		cause   watch.Cause
		verbs   []string
		text    []string
	}{
		"401": {
			options: kube.Options{Tokens: map[string]string{"right": "raven"}},
			prepare: func(f *fixture) { f.api.SetTokens(map[string]string{"other": "raven"}) },
			watch:   podWatch("spec"), cause: watch.Unauthorized,
			text: []string{"pods (v1)", "all namespaces", "401", "credentials"},
		},
		"403": {
			prepare: func(f *fixture) {
				f.api.SetDeny(kube.Deny{Resources: []string{"pods"}, Verbs: []string{"list", "watch"}})
			},
			watch: podWatch("spec"), cause: watch.Forbidden, verbs: []string{"list", "watch"},
			text: []string{
				`watch "pods" of driver "pod": may not list and watch pods (v1) in all namespaces (403)`,
				`add to the ClusterRole of this account the rule {apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]}`,
			},
		},
		"403 of watch alone": {
			prepare: func(f *fixture) { f.api.SetDeny(kube.Deny{Resources: []string{"pods"}, Verbs: []string{"watch"}}) },
			watch:   podWatch("spec"), cause: watch.Forbidden, verbs: []string{"watch"},
			text: []string{"may not watch pods (v1)"},
		},
		"403 in a namespace": {
			prepare: func(f *fixture) {
				f.api.Register(kube.Kind{Group: "example.org", Kind: "Widget", Namespaced: true})
				f.api.SetDeny(kube.Deny{Resources: []string{"widgets"}})
			},
			watch: drivers.Watch{Name: "w", GVR: widgets(), Kind: "Widget", Namespace: "default", Source: true},
			cause: watch.Forbidden, verbs: []string{"list", "watch"},
			text: []string{
				`widgets (example.org/v1) in namespace "default"`, `the Role in namespace "default"`, `apiGroups: ["example.org"]`,
			},
		},
		"404": {
			watch: drivers.Watch{Name: "w", GVR: widgets(), Kind: "Widget", Source: true}, cause: watch.NotServed,
			text: []string{`watch "w" of driver "pod"`, "widgets (example.org/v1)", "404"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, test.options, nil)
			if test.prepare != nil {
				test.prepare(f)
			}
			s, _ := f.subscribe(t, "pod", nil, test.watch)
			f.start(t)
			err := s.WaitSynced(t.Context())
			var failed *watch.SyncError
			if !errors.As(err, &failed) || len(failed.Failures) != 1 {
				t.Fatalf("error %v", err)
			}
			if got := failed.Failures[0]; got.Cause != test.cause || !slices.Equal(got.Verbs, test.verbs) || failed.NeedsOnly() {
				t.Errorf("cause %q, verbs %v", got.Cause, got.Verbs)
			}
			for _, text := range test.text {
				if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q is not in one line of %q", text, err)
				}
			}
			if _, complete := s.Keys(test.watch.Name); complete {
				t.Error("a refused watch is said to be complete")
			}
			if status := s.Status()[0]; status.Synced && name != "403 of watch alone" || status.Cause != test.cause ||
				status.Error == "" {
				t.Errorf("%+v", status)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	f := setup(t, kube.Options{}, func(c *watch.Config) { c.SyncTimeout = 300 * time.Millisecond })
	f.api.Close()
	s, _ := f.subscribe(t, "pod", nil, podWatch("spec"))
	f.start(t)
	err := s.WaitSynced(t.Context())
	var failed *watch.SyncError
	if !errors.As(err, &failed) || failed.Failures[0].Cause != watch.Unreachable ||
		!strings.Contains(err.Error(), "refused") ||
		!strings.Contains(err.Error(), "300ms") {
		t.Fatalf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitSynced(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	s.Close()
}

func TestForbiddenNeedIsUnknown(t *testing.T) {
	f := setup(t, kube.Options{}, nil)
	deny := kube.Deny{Resources: []string{"services"}, Verbs: []string{"list", "watch"}}
	f.api.SetDeny(deny)
	f.pod(t, "web")
	s, w := f.subscribe(t, "pod", nil, podWatch("spec"), serviceWatch("spec"))
	f.start(t)
	var failed *watch.SyncError
	if err := s.WaitSynced(t.Context()); !errors.As(err, &failed) || !failed.NeedsOnly() {
		t.Fatalf("error %v", err)
	}
	need := drivers.Need{Watch: "services", Namespace: "default", Name: "front"}
	s.Remember(key("web"), []drivers.Need{need})
	if _, state := s.Answer(need); state != watch.Unknown {
		t.Fatalf("a need on a forbidden watch is %v", state)
	}
	f.api.SetDeny()
	w.await(t, "pods default/web need-synced")
	if _, state := s.Answer(need); state != watch.Absent {
		t.Fatalf("%v", state)
	}
	synced(t, s)
	w.await(t, "pods default/web added")

	// Rights that are taken away later.
	w.reset()
	f.api.SetDeny(deny, kube.Deny{Resources: []string{"pods"}, Verbs: []string{"list", "watch"}})
	f.api.Expire("")
	eventually(t, func() bool { _, state := s.Answer(need); return state == watch.Unknown }, func() any {
		return s.Status()
	})
	eventually(t, func() bool { _, complete := s.Keys("pods"); return !complete }, func() any { return s.Status() })
	if _, _, state := s.Get(key("web")); state != watch.Present {
		t.Errorf("a source object is %v once the watch is refused", state)
	}
	f.api.SetDeny()
	w.await(t, "pods default/web need-synced")
	eventually(t, func() bool { _, complete := s.Keys("pods"); return complete }, func() any { return s.Status() })
	if all := w.all(); slices.Contains(all, "pods default/web deleted") {
		t.Errorf("an error was taken for a deletion: %v", all)
	}
}

func TestOptionalResource(t *testing.T) {
	f := setup(t, kube.Options{}, nil)
	f.pod(t, "web")
	w := drivers.Watch{Name: "widgets", GVR: widgets(), Kind: "Widget", Optional: true}
	s, woken := f.subscribe(t, "pod", nil, podWatch("spec"), w)
	f.start(t)
	synced(t, s)
	need := drivers.Need{Watch: "widgets", Namespace: "default", Name: "one"}
	s.Remember(key("web"), []drivers.Need{need})
	if _, state := s.Answer(need); state != watch.Absent {
		t.Fatalf("%v", state)
	}
	if status := s.Status()[1]; !status.Absent || !status.Synced || status.Error != "" {
		t.Errorf("%+v", status)
	}
	f.api.Register(kube.Kind{Group: "example.org", Kind: "Widget", Namespaced: true})
	f.create(t, widgets(), object(widgets(), "Widget", "default", "one"))
	woken.await(t, "pods default/web need-changed")
	if got, state := s.Answer(need); state != watch.Present || len(got) != 1 {
		t.Errorf("%v %v", got, state)
	}
}

func TestSelectors(t *testing.T) {
	f := setup(t, kube.Options{}, nil)
	f.pod(t, "web", "app", "web")
	f.pod(t, "db", "app", "db")
	w := podWatch("spec")
	w.LabelSelector, w.FieldSelector, w.Namespace = "app=web", "metadata.name!=none", "default"
	s, woken := f.subscribe(t, "pod", nil, w)
	f.start(t)
	synced(t, s)
	if uids, complete := s.UIDs("pods"); len(uids) != 1 || !complete {
		t.Errorf("%v", uids)
	}
	f.patch(t, pods(), "web", `{"metadata":{"labels":{"app":"no"}}}`)
	woken.await(t, "pods default/web deleted")
	if _, state := s.Answer(drivers.Need{Watch: "pods", Namespace: "elsewhere", Name: "web"}); state != watch.Unknown {
		t.Errorf("outside of the watch's namespace: %v", state)
	}
}

func TestSubscribeRefuses(t *testing.T) {
	f := setup(t, kube.Options{}, nil)
	for name, watches := range map[string][]drivers.Watch{
		"twice":    {podWatch(), podWatch()},
		"no name":  {{GVR: pods()}},
		"no GVR":   {{Name: "x"}},
		"selector": {{Name: "x", GVR: pods(), LabelSelector: "a in"}},
	} {
		if _, err := f.manager.Subscribe("d", watches, nil, func(watch.Key, watch.Reason) {}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	f.manager.Stop()
	if _, err := f.manager.Subscribe("d", nil, nil, nil); !errors.Is(err, watch.ErrStopped) {
		t.Errorf("error %v", err)
	}
	if err := f.manager.Run(t.Context()); !errors.Is(err, watch.ErrStopped) {
		t.Errorf("error %v", err)
	}
}

func TestOwned(t *testing.T) {
	f := setup(t, kube.Options{}, nil)
	f.pod(t, "web")
	o := object(pods(), "Pod", "default", "web")
	o.SetLabels(nil)
	delete(o.Object, "spec")
	o.SetAnnotations(map[string]string{"raven/port": "p"})
	_, err := f.clients.Dynamic.Resource(pods()).Namespace("default").
		Apply(t.Context(), "web", o, metav1.ApplyOptions{FieldManager: "raven-pod", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := f.subscribe(t, "pod", []string{"raven/port"}, podWatch("spec"))
	f.start(t)
	synced(t, s)
	_, meta, _ := s.Get(key("web"))
	if diff := cmp.Diff(map[string]watch.Owned{"raven-pod": {Annotations: []string{"raven/port"}}},
		meta.Owned); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStopWhileTheServerHangs ends a Manager whose every request is under way.
func TestStopWhileTheServerHangs(t *testing.T) {
	for mode, listOnly := range modes() {
		t.Run(mode, func(t *testing.T) {
			f := setup(t, kube.Options{}, func(c *watch.Config) { c.ListOnly = listOnly })
			release, arrived := make(chan struct{}), make(chan struct{}, 100)
			f.api.OnRequest(func(kube.Request) { arrived <- struct{}{}; <-release })
			t.Cleanup(func() { close(release) })
			s, _ := f.subscribe(t, "pod", nil, podWatch("spec"))
			f.start(t)
			<-arrived
			f.manager.Stop() // which would not return if it waited for an answer
			<-f.ended
			s.Close()
		})
	}
}
