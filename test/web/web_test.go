// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/web"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

const live = `document.querySelector('.link.live') !== null`

// TestPage goes through the page of a raven whose cloud is short of ports.
func TestPage(t *testing.T) {
	p := browse(t)
	w := newWorld(t, simcloud.Options{
		Quotas: map[string]int{"port": 20}, Providers: []simcloud.Provider{simcloud.LabAmphora(30)},
	})
	w.shop()
	p.do(chromedp.Navigate(w.address(t)))
	w.crowd()
	p.until(live)
	p.untilText(".groups button", "crowd")
	p.run(t, "namespaces", func(t *testing.T) { namespaces(t, p, w) })
	p.run(t, "waiting pod", func(t *testing.T) { waitingPod(t, p) })
	p.run(t, "search", func(t *testing.T) { searches(t, p) })
	p.run(t, "keyboard", func(t *testing.T) { keyboard(t, p) })
	p.run(t, "accessible", func(t *testing.T) { accessible(t, p) })
	p.run(t, "narrow", func(t *testing.T) { narrow(t, p) })
	p.run(t, "restart", func(t *testing.T) { restart(t, p, w) })
	screenshots(t, p)
}

// shop makes a namespace with a Service and its pods, and waits until all is there.
func (w *world) shop() {
	w.namespace("shop")
	for i := range 3 {
		w.pod("shop", fmt.Sprintf("web-%d", i))
	}
	w.service("shop", "web")
	w.settled("shop", 4)
}

// settled waits until so many objects of a namespace are done.
func (w *world) settled(namespace string, want int) {
	w.tb.Helper()
	url := w.address(w.tb) + "api/topology?state=done"
	for deadline := time.Now().Add(settling); ; time.Sleep(50 * time.Millisecond) {
		var t web.Topology
		if code, body := get(w.tb, url); code == 200 && json.Unmarshal(body, &t) == nil {
			for _, g := range t.Groups {
				if g.Namespace == namespace && g.Objects >= want {
					return
				}
			}
		}
		if time.Now().After(deadline) {
			w.tb.Fatalf("namespace %s has no %d objects that are done", namespace, want)
		}
	}
}

const settling = time.Minute

// crowd makes a namespace with more pods than there are ports for.
func (w *world) crowd() {
	w.namespace("crowd")
	for i := range 25 {
		w.pod("crowd", fmt.Sprintf("pod-%02d", i))
	}
}

// address waits until the page is served.
func (w *world) address(t testing.TB) string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if code, _ := get(t, w.url()+"api/overview"); code == 200 {
			return w.url()
		}
		select {
		case <-w.process.Ended:
			t.Fatal("raven ended:", w.process.Err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the page is not served")
		}
	}
}

func namespaces(t *testing.T, p *page, w *world) {
	w.namespace("late")
	began := time.Now()
	p.untilText(".groups button", "late")
	t.Logf("a namespace appeared after %s", time.Since(began).Round(time.Millisecond))
	if err := w.kube.Delete(gvr("namespaces"), "", "late"); err != nil {
		t.Fatal(err)
	}
	p.until(`![...document.querySelectorAll('.groups button')].some(e => e.textContent.includes('late'))`)
}

func waitingPod(_ *testing.T, p *page) {
	p.show("#/overview")
	p.untilText("h1", "Overview")
	p.until(`document.querySelector('.overview .nodes a[href*="object/Pod/crowd"]') !== null`)
	p.eval(`document.querySelector('.overview .nodes a[href*="object/Pod/crowd"]').click()`, nil)
	p.untilText("h1", "crowd/pod-")
	p.untilText(".why", "Quota exceeded")
	p.untilText(".card .state", "waiting")
	p.untilText(".card time", " s")
	p.untilText(".diff", "port")
}

func searches(_ *testing.T, p *page) {
	p.show("#/")
	p.do(chromedp.WaitVisible("#search"), chromedp.SendKeys("#search", "web-1"))
	p.untilText("search .nodes", "shop/web-1")
	p.eval(`document.querySelector('search .nodes a').click()`, nil)
	p.untilText("h1", "shop/web-1")
	p.untilText("article .nodes", "shop-subnet")
}

// keyboard expands a namespace without a pointer, and sees it on the canvas, too.
func keyboard(t *testing.T, p *page) {
	p.show("#/")
	p.do(chromedp.WaitVisible(".groups button"))
	p.eval(`[...document.querySelectorAll('.groups button')].find(e => e.textContent.includes('shop')).focus()`, nil)
	p.do(chromedp.KeyEvent("\r"))
	p.untilText(".groups .nodes", "web-2")
	p.until(`ravenGraph.getElementById('Pod/shop/web-2').nonempty()`)
	var before, after string
	const where = `JSON.stringify(ravenGraph.nodes().filter(n => !n.isParent()).map(n => [n.id(), n.position()]).sort())`
	p.eval(where, &before)
	p.eval(`document.querySelector('.tools button').click()`, nil)
	p.eval(where, &after)
	if before != after {
		t.Error("zooming has moved nodes")
	}
}

func accessible(t *testing.T, p *page) {
	axe, err := os.ReadFile("../../web/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skip("there is no axe-core: run make web first")
	}
	for _, hash := range []string{"#/", "#/overview", "#/object/Pod/shop/web-1", "#/object/Pod/none/none"} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				p.do(p.as(width, 800, scheme))
				p.show(hash)
				p.until(`document.querySelector('h1') !== null && document.querySelector('.link.live') !== null`)
				p.do(chromedp.Evaluate(string(axe)+";0", nil))
				var found []string
				p.eval(`axe.run().then(r => r.violations.map(v => v.id + ': ' + v.help + ' ' +
					v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' + n.failureSummary).join(' | ')))`, &found)
				for _, violation := range found {
					t.Errorf("%s, %s, %d pixels: %s", hash, scheme, width, violation)
				}
			}
		}
	}
	p.do(p.as(1280, 800, "light"))
}

// narrow sees to it that nothing is wider than a phone.
func narrow(t *testing.T, p *page) {
	p.do(p.as(390, 800, "light"))
	for _, hash := range []string{"#/", "#/overview", "#/object/Pod/shop/web-1"} {
		p.show(hash)
		p.until(`document.querySelector('h1') !== null`)
		var width int
		p.eval(`document.documentElement.scrollWidth`, &width)
		if width > 390 {
			t.Errorf("%s is %d pixels wide", hash, width)
		}
	}
	p.do(p.as(1280, 800, "light"))
}

func restart(_ *testing.T, p *page, w *world) {
	p.show("#/")
	w.stop()
	p.until(`document.querySelector('.link.lost') !== null`)
	w.start()
	p.until(live)
	w.namespace("after")
	p.untilText(".groups button", "after")
}

// screenshots are written where RAVEN_WEB_SCREENSHOTS says, for the documents.
func screenshots(t *testing.T, p *page) {
	dir := os.Getenv("RAVEN_WEB_SCREENSHOTS")
	if dir == "" {
		return
	}
	var pod string
	p.show("#/overview")
	p.until(`document.querySelector('.overview .nodes a[href*="object/Pod/crowd"]') !== null`)
	p.eval(`[...document.querySelectorAll('.overview .nodes a[href*="object/Pod/crowd"]')].at(-1).getAttribute('href')`, &pod)
	for _, shot := range []struct {
		name, hash, scheme string
		width, height      int64
	}{
		{"object", pod, "light", 1280, 800},
		{"topology", "#/", "light", 1280, 800}, {"topology-dark", "#/", "dark", 1280, 800},
		{"topology-narrow", "#/", "light", 390, 844}, {"overview", "#/overview", "light", 1280, 800},
	} {
		p.do(p.as(shot.width, shot.height, shot.scheme))
		p.show("#/none")
		p.show(shot.hash)
		p.until(`document.querySelector('h1') !== null && document.querySelectorAll('ul.nodes li, .card').length > 0`)
		if shot.hash == "#/" {
			p.until(`document.querySelector('.canvas canvas') !== null && (ravenGraph.resize(), ravenGraph.fit(undefined, 24), true)`)
		}
		p.eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))`, nil)
		var png []byte
		p.do(chromedp.CaptureScreenshot(&png))
		if err := os.WriteFile(dir+"/web-"+shot.name+".png", png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// hostile are names that no API admits, which a page must show as text nevertheless.
func hostile() []string {
	return []string{
		`<script>window.hacked = 1</script>`, `<img src=x onerror="window.hacked = 1">`, "\u202egnp.exe", `"'><b>bold</b>`,
		"javascript:window.hacked=1", strings.Repeat("x", 253), "a/b?c#d%zz",
	}
}

// stub is a state with objects of some names.
type stub struct{ objects []reconcile.ObjectStatus }

func (s stub) Overview() any {
	return map[string]any{"version": hostile()[0], "counts": map[string]int{}}
}
func (s stub) Objects() []reconcile.ObjectStatus { return s.objects }
func (s stub) Counts() map[state.Phase]int       { return nil } // null in JSON
func (s stub) Changes() uint64                   { return 1 }
func (s stub) Describe(f reconcile.Filter) any {
	list := []reconcile.Description{}
	for _, o := range s.objects {
		if o.Kind == f.Kind && o.Namespace == f.Namespace && o.Name == f.Name {
			list = append(list, reconcile.Description{ObjectStatus: o})
		}
	}
	return map[string]any{"objects": list}
}

func TestHostileNames(t *testing.T) {
	var s stub
	for _, name := range hostile() {
		s.objects = append(s.objects,
			reconcile.ObjectStatus{Driver: name, Kind: "Namespace", Name: name, UID: name, State: state.Done},
			reconcile.ObjectStatus{
				Driver: name, Kind: "Pod", Namespace: name, Name: name, UID: name, State: state.Failing,
				Reasons: []string{name}, Messages: []string{name}, Resources: []reconcile.ResourceStatus{{
					Kind: drivers.KindSubnet, Name: name, ID: name, Role: name, Status: name, Attrs: map[string]any{name: name},
				}},
			})
	}
	p := browse(t)
	server := web.New(web.Config{
		Enabled: true, Host: "127.0.0.1", Source: s, Logger: slog.New(slog.DiscardHandler),
	})
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(server.Stop(context.Background(), false), server.Wait()); err != nil {
			t.Error(err)
		}
	})
	p.do(chromedp.Navigate("http://" + server.Address() + "/"))
	p.until(live)
	for _, name := range hostile() {
		p.show("#/")
		p.untilText(".groups bdi", name)
		p.eval(fmt.Sprintf(`[...document.querySelectorAll('.groups button')].find(e => e.textContent.includes(%q)).click()`, name), nil)
		p.untilText(".groups .nodes", name)
		p.show(strings.TrimPrefix(web.Link("", "Pod", name, name), "/"))
		p.untilText("h1", name)
		p.untilText(".why", name)
	}
	p.show("#/overview")
	p.untilText("article", hostile()[0])
	var hacked bool
	p.eval(`window.hacked !== undefined || document.querySelector('main script, main b.x, main img') !== null`, &hacked)
	if hacked {
		t.Error("a name was taken for markup")
	}
}
