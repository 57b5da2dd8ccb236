// SPDX-License-Identifier: Apache-2.0

// Package charts_test renders the Helm chart and the kustomize base with Helm's and kustomize's own code.
package charts_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	chart = "../../etc/helm/raven"
	base  = "../../etc/kustomize"
)

type object = map[string]any

// needed are the values without which nothing is rendered, those of the kustomize base.
func needed(more object) object {
	return loader.MergeMaps(object{
		"apiServer": "https://192.0.2.10:6443", "authURL": "https://keystone.example.org:5000/v3",
		"credentials": object{
			"applicationCredentialID": "5f9f66f5e83642cdb6e8e07b22d7e990", "applicationCredentialSecret": "change-me",
		},
		"image": object{"tag": "latest"},
	}, more)
}

// render returns the objects by kind and name, as a release of a name in namespace raven.
func render(t *testing.T, release string, values object) (map[string]object, error) {
	t.Helper()
	c, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: "raven", IsInstall: true},
		common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	found := map[string]object{}
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			read(t, name, text, found)
		}
	}
	return found, nil
}

// read reads the documents of a file strictly: a doubled key is an error.
func read(t *testing.T, file, text string, into map[string]object) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		if o == nil {
			continue
		}
		metadata, _ := o["metadata"].(object)
		name := fmt.Sprint(o["kind"], " ", metadata["name"])
		if into[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		into[name] = o
	}
}

func built(t *testing.T, folder string) map[string]object {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := result.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]object{}
	read(t, folder, string(text), found)
	return found
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]object{"needed": needed(nil), "everything": needed(everything)} {
		for _, m := range lint.RunAll(chart, values, "raven").Messages {
			if m.Severity > 1 || !strings.Contains(m.Error(), "icon") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// everything are values that turn everything on.
var everything = object{
	"drivers": []any{"namespace", "pod", "node", "kubeproxy", "networkpolicy", "mine"},
	"rbac": object{"extraRules": []any{object{
		"apiGroups": []any{"example.org"}, "resources": []any{"things"}, "verbs": []any{"list", "watch"},
	}}},
	"config": object{
		"neutron_defaults": object{"external_svc_net": "public"},
		"DEFAULT":          object{"debug": true, "graceful_shutdown_timeout": 30.0},
	},
	"serviceMonitor": object{"enabled": true, "labels": object{"release": "prometheus"}},
	"tolerations":    []any{object{"key": "dedicated", "operator": "Exists"}},
	"nodeSelector":   object{"node-role.kubernetes.io/control-plane": ""},
	"image":          object{"repository": "registry.example.org/raven", "tag": "1.2.3", "pullSecrets": []any{"mine"}},
	"node":           object{"nodeSelector": object{"network": "raven"}, "config": object{"node": object{"mtu": 1400.0}}},
}

// A release raven in namespace raven is what the kustomize base makes, but for labels and the like that Helm adds.
func TestChartIsTheBase(t *testing.T) {
	t.Parallel()
	want := built(t, base)
	delete(want, "Namespace raven") // the one that is named to Helm
	got, err := render(t, "raven", needed(nil))
	if err != nil {
		t.Fatal(err)
	}
	if w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(w, g) {
		t.Fatalf("the chart has\n%v\nthe base\n%v", g, w)
	}
	for name := range want {
		w, g := plain(want[name]), plain(got[name])
		if metadata := w["metadata"].(object); metadata["labels"] == nil {
			delete(g["metadata"].(object), "labels")
		}
		switch {
		case strings.HasPrefix(name, "ClusterRole ") || strings.HasPrefix(name, "Role "):
			if w, g := rights(w), rights(g); !reflect.DeepEqual(w, g) {
				t.Errorf("%s:\nthe chart %v\nthe base  %v", name, g, w)
			}
		case strings.HasPrefix(name, "ConfigMap "):
			for key := range w["data"].(object) {
				if w, g := options(want[name], key), options(got[name], key); !maps.Equal(w, g) {
					t.Errorf("%s %s:\nthe chart %v\nthe base  %v", name, key, g, w)
				}
			}
		case !reflect.DeepEqual(w, g):
			a, _ := yaml.Marshal(g)
			b, _ := yaml.Marshal(w)
			t.Errorf("%s: the chart has\n%s\nthe base\n%s", name, a, b)
		}
	}
}

// plain leaves out of an object what only Helm adds.
func plain(of object) object {
	helms := []string{
		"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart",
		"checksum/config", "checksum/credentials",
	}
	out := object{}
	for key, value := range of {
		if slices.Contains(helms, key) || key == "imagePullPolicy" {
			continue
		}
		if list, ok := value.([]any); ok {
			copied := slices.Clone(list)
			for i := range copied {
				if o, ok := copied[i].(object); ok {
					copied[i] = plain(o)
				}
			}
			value = copied
		}
		switch v := value.(type) {
		case object:
			value = plain(v)
		case string: // kustomize folds lines anew
			value = strings.Join(strings.Fields(v), " ")
		}
		if o, ok := value.(object); ok && len(o) == 0 && (key == "labels" || key == "annotations") {
			continue
		}
		out[key] = value
	}
	return out
}

// rights are the verbs of each resource. What is allowed for all needs not be allowed for one by name.
func rights(role object) map[string][]string {
	verbs := map[string][]string{}
	rules, _ := role["rules"].([]any)
	for _, rule := range rules {
		r := rule.(object)
		for _, group := range words(r["apiGroups"]) {
			for _, resource := range words(r["resources"]) {
				key := strings.TrimSpace(fmt.Sprint(group, "/", resource, " ", strings.Join(words(r["resourceNames"]), ",")))
				verbs[key] = append(verbs[key], words(r["verbs"])...)
			}
		}
	}
	for key, list := range verbs {
		all, _, named := strings.Cut(key, " ")
		if named && !slices.ContainsFunc(list, func(verb string) bool { return !slices.Contains(verbs[all], verb) }) {
			delete(verbs, key)
			continue
		}
		slices.Sort(list)
		verbs[key] = slices.Compact(list)
	}
	return verbs
}

func words(of any) (out []string) {
	list, _ := of.([]any)
	for _, word := range list {
		out = append(out, fmt.Sprint(word))
	}
	return out
}

// options are the options of a file in a ConfigMap, by section.
func options(of object, file string) map[string]string {
	found, section := map[string]string{}, ""
	for line := range strings.Lines(fmt.Sprint(of["data"].(object)[file])) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "["):
			section = line
		case strings.HasPrefix(line, "#") || line == "":
		default:
			name, value, _ := strings.Cut(line, "=")
			found[section+" "+strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return found
}

func TestEverythingTurnedOn(t *testing.T) {
	t.Parallel()
	got, err := render(t, "other", needed(everything))
	if err != nil {
		t.Fatal(err)
	}
	conf := options(got["ConfigMap other"], "kuryr.conf")
	for option, want := range map[string]string{
		"[raven] drivers":                     "namespace,pod,node,kubeproxy,networkpolicy,mine",
		"[neutron_defaults] external_svc_net": "public", "[DEFAULT] debug": "true",
		"[DEFAULT] graceful_shutdown_timeout": "30",
	} {
		if conf[option] != want {
			t.Errorf("%s is %q, want %q", option, conf[option], want)
		}
	}
	if mtu := options(got["ConfigMap other-node"], "kuryr.conf")["[node] mtu"]; mtu != "1400" {
		t.Errorf("[node] mtu is %q", mtu)
	}
	can := rights(got["ClusterRole other"])
	for resource, verb := range map[string]string{
		"networking.k8s.io/networkpolicies": "watch", "/services/status": "patch", "/nodes": "patch",
		"example.org/things": "list",
	} {
		if !slices.Contains(can[resource], verb) {
			t.Errorf("it may not %s %s", verb, resource)
		}
	}
	if got["ServiceMonitor other"] == nil {
		t.Error("there is no ServiceMonitor")
	}
	policy, _ := yaml.Marshal(got["ValidatingAdmissionPolicy other-annotations"])
	for _, account := range []string{"system:serviceaccount:raven:other'", "system:serviceaccount:raven:other-node'"} {
		if !strings.Contains(string(policy), account) {
			t.Errorf("the policy does not know %s", account)
		}
	}
	off, err := render(t, "raven", needed(object{
		"node": object{"enabled": false}, "admissionPolicy": object{"enabled": false},
		"credentials": object{"existingSecret": "mine", "applicationCredentialID": "", "applicationCredentialSecret": ""},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name := range off {
		kind, _, _ := strings.Cut(name, " ")
		if strings.Contains(name, "raven-node") || strings.HasPrefix(kind, "Validating") || kind == "Secret" {
			t.Errorf("%s is turned off and there", name)
		}
	}
	if text, _ := yaml.Marshal(off["Deployment raven"]); !strings.Contains(string(text), "name: mine\n") {
		t.Error("the Deployment does not have the Secret that exists")
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values object
		want   string
	}{
		"nothing":       {object{}, "apiServer is not set"},
		"no Keystone":   {needed(object{"authURL": ""}), "authURL is not set"},
		"no secret":     {needed(object{"credentials": object{"applicationCredentialSecret": ""}}), "existingSecret"},
		"no URL":        {needed(object{"apiServer": "10.0.0.1:6443"}), "apiServer"},
		"a slip":        {needed(object{"replica": 2}), "replica"},
		"a word":        {needed(object{"replicas": "two"}), "replicas"},
		"no drivers":    {needed(object{"drivers": []any{}}), "drivers"},
		"twice":         {needed(object{"drivers": []any{"pod", "pod"}}), "drivers"},
		"no section":    {needed(object{"config": object{"debug": true}}), "config"},
		"of the node":   {needed(object{"node": object{"cniPlugins": "opt/cni"}}), "cniPlugins"},
		"pull":          {needed(object{"image": object{"pullPolicy": "sometimes"}}), "pullPolicy"},
		"a small space": {needed(object{"serviceMonitor": object{"interval": "30"}}), "interval"},
	} {
		if _, err := render(t, "raven", c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, wanted %q in it", name, err, c.want)
		}
	}
}

// Every value has its line in docs/helm.md, with the default.
func TestValuesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values object
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/helm.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = strings.Trim(row[2], "`")
	}
	seen := map[string]bool{}
	leaves("", values, func(name string, value any) {
		seen[name] = true
		want := strings.TrimSpace(fmt.Sprint(value))
		if list, ok := value.([]any); ok {
			want = strings.Join(words(list), ", ")
		}
		if o, ok := value.(object); ok && len(o) == 0 {
			want = ""
		}
		if got, there := rows[name]; !there || got != want {
			t.Errorf("docs/helm.md says of %s %q, and must say %q", name, got, want)
		}
	})
	for name := range rows {
		if !seen[name] {
			t.Errorf("docs/helm.md has a value %s that is none", name)
		}
	}
}

func leaves(prefix string, of object, tell func(string, any)) {
	for key, value := range of {
		if o, ok := value.(object); ok && len(o) > 0 {
			leaves(prefix+key+".", o, tell)
			continue
		}
		tell(prefix+key, value)
	}
}
