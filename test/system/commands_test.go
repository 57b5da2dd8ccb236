// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/test/harness"
)

// planned is what is read of `raven plan -o json`.
type planned struct {
	Create   int `json:"create"`
	Change   int `json:"change"`
	Delete   int `json:"delete"`
	Write    int `json:"write"`
	Problems int `json:"problems"`
}

func (r *rig) plan(want int) planned {
	r.t.Helper()
	got := r.raven("plan", "--config-file", r.configure(), "-o", "json")
	if got.status != want {
		r.t.Errorf("raven plan: exit status %d, wanted %d: %s%s", got.status, want, tailOf(got.out), got.errors)
	}
	var p planned
	if err := json.Unmarshal([]byte(got.out), &p); err != nil && want != 1 {
		r.t.Errorf("raven plan -o json: %v: %s", err, tailOf(got.out))
	}
	return p
}

// readOnly checks that nothing was written on either side since the logs were reset.
func (r *rig) readOnly() {
	r.t.Helper()
	if n := r.cloud.Stats().Writes; n != 0 {
		r.t.Errorf("the cloud was written to %d times", n)
	}
	for _, q := range r.kube.Requests() {
		if !slices.Contains([]string{"get", "list", "watch"}, q.Verb) {
			r.t.Errorf("the cluster was written to: %s %s (%s)", q.Verb, q.Path, q.Agent)
		}
	}
}

func TestPlanSaysWhatThereIsToDoAndWritesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.bare()
	r.createNamespace("shop")
	r.createPod("shop", "a")
	r.kube.ResetLog()
	p := r.plan(2)
	if p.Create < 15 || p.Delete+p.Problems+p.Change > 3 {
		t.Errorf("for an empty cloud: %+v", p)
	}
	text := r.raven("plan", "--config-file", r.configure())
	for _, pattern := range []string{
		`Pod shop/a +driver pod`, `\+ create port "a"`, `\+ create network "shop"`,
		`\d+ to create, \d+ to change, 0 to delete`,
	} {
		if !regexp.MustCompile(pattern).MatchString(text.out) {
			t.Errorf("raven plan has nothing like %s:\n%s", pattern, text.out)
		}
	}
	r.readOnly()

	d := r.start()
	r.awaitRest(d)
	d.stop()
	r.cloud.ResetLog()
	r.kube.ResetLog()
	if p := r.plan(0); p != (planned{}) {
		t.Errorf("after everything is done: %+v", p)
	}
	if got := r.raven("plan", "--config-file", r.configure()); got.out != "Nothing to do: the cloud is as the cluster "+
		"wants it.\n" {
		t.Errorf("raven plan says:\n%s", got.out)
	}

	r.patchPod("shop", "a", `{"status":{"phase":"Succeeded"}}`)
	if p := r.plan(2); p.Delete != 1 || p.Create != 0 {
		t.Errorf("after the pod has completed: %+v", p)
	}
	r.conf.Set("raven", "drivers", "nosuch")
	r.plan(1)
	r.kube.ResetLog() // the test's own patch is in it
	r.conf.Set("raven", "drivers", "namespace,pod")
	r.plan(2)
	r.readOnly()
}

func TestPlanWithAnObjectThatHasNoPlanIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.createNamespace("shop")
	r.createPod("shop", "a")
	r.patchPod("shop", "a", `{"metadata":{"labels":{"kuryr.org/neutron-security-group":"no-uuid"}}}`)
	got := r.raven("plan", "--config-file", r.configure())
	if got.status != 1 || !strings.Contains(got.out, "no-uuid") || !strings.Contains(got.errors, "raven: 1 object") {
		t.Errorf("exit status %d:\n%s%s", got.status, tailOf(got.out), got.errors)
	}
}

func TestTranslateShowsWhatDriversMakeOfAFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	manifest := r.write("m.yaml", `apiVersion: v1
kind: Namespace
metadata: {name: shop, uid: 11111111-1111-1111-1111-111111111111}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, uid: 22222222-2222-2222-2222-222222222222}
spec: {nodeName: node-1}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: shop}
spec: {hostNetwork: true}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {spec: {}}}
`)
	type entry struct {
		Object string         `json:"object"`
		Driver string         `json:"driver"`
		Set    map[string]any `json:"set"`
	}
	type document struct {
		FormatVersion int     `json:"formatVersion"`
		Objects       []entry `json:"objects"`
		Unread        []struct {
			Object string `json:"object"`
			Reason string `json:"reason"`
		} `json:"unread"`
	}
	var fromYAML, fromJSON document
	conf := r.write("translate.conf", "") // neither a cluster nor a cloud is named
	for format, into := range map[string]*document{"yaml": &fromYAML, "json": &fromJSON} {
		got := r.raven("translate", "--config-file", conf, "-f", manifest, "-o", format)
		if got.status != 2 {
			t.Errorf("-o %s: exit status %d: %s", format, got.status, got.errors)
		}
		if err := yaml.Unmarshal([]byte(got.out), into); err != nil || into.FormatVersion != 1 {
			t.Errorf("-o %s: version %d, %v", format, into.FormatVersion, err)
		}
		const reason = "no enabled driver (namespace, pod) reads Deployment of apps/v1; the Pods"
		if len(into.Unread) != 1 || into.Unread[0].Object != "Deployment shop/web" ||
			!strings.Contains(into.Unread[0].Reason, reason) {
			t.Errorf("-o %s: unread are %v", format, into.Unread)
		}
	}
	objects := func(list []entry) string {
		var names []string
		for _, e := range list {
			names = append(names, e.Driver+" "+e.Object)
		}
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	if want := "namespace Namespace shop, pod Pod shop/a, pod Pod shop/host"; objects(fromYAML.Objects) != want ||
		objects(fromJSON.Objects) != want {
		t.Errorf("translated: %s; as JSON: %s; wanted %s", objects(fromYAML.Objects), objects(fromJSON.Objects), want)
	}
	if text := r.raven("translate", "--config-file", conf, "-f", manifest).out; !strings.Contains(text,
		"device_id: 22222222-2222-2222-2222-222222222222") {
		t.Errorf("the port's device_id is not shown:\n%s", text)
	}
	planned := r.raven("plan", "--config-file", conf, "-f", manifest)
	for _, want := range []string{
		"Deployment shop/web  not read: no enabled driver", "Pod shop/host  nothing is to be made of it",
	} {
		if planned.status != 2 || !strings.Contains(planned.out, want) {
			t.Errorf("raven plan -f: exit status %d, and no %q in:\n%s%s", planned.status, want, planned.out, planned.errors)
		}
	}
	asJSON := r.raven("plan", "--config-file", conf, "-f", manifest, "-o", "json").out
	for _, key := range regexp.MustCompile(`"([A-Z][A-Za-z]*)":`).FindAllString(asJSON, -1) {
		t.Errorf("raven plan -o json has the key %s", key)
	}
	if !strings.Contains(asJSON, `"formatVersion": 1`) || !strings.Contains(asJSON, `"op": "create"`) {
		t.Errorf("raven plan -o json:\n%s", tailOf(asJSON))
	}
	if len(r.kube.Requests()) > 0 || r.cloud.Stats().Requests > 0 {
		t.Error("a cluster or a cloud was asked")
	}
	bad := r.write("bad.yaml",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {kuryr.org/neutron-security-group: x}}\n")
	if got := r.raven("translate", "--config-file", conf, "-f", bad); got.status != 1 ||
		!strings.Contains(got.errors, "is not the UUID of a security group") {
		t.Errorf("exit status %d: %s%s", got.status, got.out, got.errors)
	}
}

func TestStatusInEveryFormatAndFiltered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.start()
	r.createNamespace("shop")
	r.createNamespace("blog")
	r.createPod("shop", "a")
	r.createPod("blog", "b")
	r.awaitRest(d)
	r.createPod("blog", "odd")
	r.patchPod("blog", "odd", `{"metadata":{"labels":{"kuryr.org/neutron-security-group":"odd"}}}`)
	must(t, "the state of the odd pod", func() string {
		s, err := d.status()
		if err != nil {
			return err.Error()
		}
		for _, o := range s.Objects {
			if o.Name == "odd" && o.State == "terminal" {
				return ""
			}
		}
		return "it is not terminal"
	})
	ask := func(args ...string) []string {
		t.Helper()
		got := r.raven(append([]string{"status", "--address", d.address(), "-o", "json"}, args...)...)
		var s status
		if err := json.Unmarshal([]byte(got.out), &s); err != nil || got.status != 0 {
			t.Errorf("raven status %v: %v, exit status %d: %s", args, err, got.status, got.errors)
		}
		var names []string
		for _, o := range s.Objects {
			names = append(names, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
		}
		return names
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--kind", "Pod"}, []string{"blog/b", "blog/odd", "shop/a"}},
		{[]string{"--kind", "Pod", "-n", "shop"}, []string{"shop/a"}},
		{[]string{"--kind", "Pod", "--state", "done"}, []string{"blog/b", "shop/a"}},
		{[]string{"--state", "terminal"}, []string{"blog/odd"}},
		{[]string{"--driver", "namespace", "--name", "shop"}, []string{"shop"}},
		{[]string{"--namespace", "blog", "--state", "waiting"}, nil},
	} {
		if got := ask(c.args...); !slices.Equal(got, c.want) {
			t.Errorf("raven status %v shows %v, wanted %v", c.args, got, c.want)
		}
	}
	unknown := r.raven("status", "--address", d.address(), "--namespace", "nowhere")
	if unknown.status != 1 || !strings.Contains(unknown.errors, "knows no object of namespace nowhere") {
		t.Errorf("an unknown namespace: exit status %d: %s", unknown.status, unknown.errors)
	}
	document := r.raven("status", "--address", d.address(), "-o", "json").out
	for _, want := range []string{`"formatVersion": 1`, `"durationSeconds": `, `"longestSeconds": `} {
		if !strings.Contains(document, want) {
			t.Errorf("raven status -o json has no %s", want)
		}
	}
	if v := r.raven("version"); v.status != 0 || !strings.HasPrefix(v.out, "raven dev\ndriver protocol 1\n") {
		t.Errorf("raven version: exit status %d: %s%s", v.status, v.out, v.errors)
	}
	got := r.raven("status", "--address", d.address())
	for _, pattern := range []string{
		`(?m)^DRIVER +VERSION +OBJECTS +STATE`, `(?m)^pod +dev +3 +ready`, `(?m)^Pod +shop/a +pod +done .*port +192\.168\.`,
		`(?m)^Pod +blog/odd +pod +terminal .*is not the UUID of a security group`, `(?m)^Namespace +shop +namespace +done`,
	} {
		if !regexp.MustCompile(pattern).MatchString(got.out) {
			t.Errorf("raven status has no line like %s:\n%s", pattern, got.out)
		}
	}
	var asYAML status
	if err := yaml.Unmarshal([]byte(r.raven("status", "--address", d.address(), "-o", "yaml").out),
		&asYAML); err != nil || len(asYAML.Objects) < 5 {
		t.Errorf("raven status -o yaml: %v, %d objects", err, len(asYAML.Objects))
	}
	d.stop()
}

func TestSampleConfigurationIsUpToDate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	folders, err := filepath.Glob("../../plugins/raven-driver-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders { // the sample is of all drivers in the tree
		r.install(filepath.Base(folder), "bin/"+filepath.Base(folder))
	}
	got := r.raven("config", "sample")
	want, err := os.ReadFile("../../kuryr.conf.sample")
	if err != nil {
		t.Fatal(err)
	}
	if got.status != 0 || got.out != string(want) {
		t.Errorf("kuryr.conf.sample is stale: run `make generate` (exit status %d):\n%s", got.status,
			harness.LineDiff(string(want), got.out))
	}
	for _, private := range []string{"/tmp/", "/work", "/root", r.dir} {
		if strings.Contains(got.out, private) {
			t.Errorf("the sample holds %s, which is of this machine", private)
		}
	}
	// An option's description ends with its type.
	if bare := regexp.MustCompile(`(?m)^\n# \(\w+ value\)\n(#.*\n)*#?\w+ =`).FindString(got.out); bare != "" {
		t.Errorf("an option has no description:%s", bare)
	}
	// And it is a configuration: with nothing set in it.
	if valid := r.raven("config", "validate", "--strict", "--config-file", "../../kuryr.conf.sample"); valid.status != 0 &&
		!strings.Contains(valid.out, "auth_url is not set") {
		t.Errorf("raven config validate: %s%s", valid.out, valid.errors)
	}
}
