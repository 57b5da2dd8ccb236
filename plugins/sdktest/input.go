package sdktest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/drivers"
)

// testCase is one folder of testdata.
type testCase struct {
	values  drivers.Values
	objects []map[string]any
	needs   map[string]any
}

func readCase(dir string, info drivers.Info) (testCase, error) {
	var out testCase
	overrides := map[string]map[string]any{}
	if err := readYAML(filepath.Join(dir, "config.yaml"), &overrides); err != nil {
		return out, err
	}
	var err error
	if out.values, err = drivers.DefaultValues(info.Options, overrides); err != nil {
		return out, fmt.Errorf("config.yaml: %w", err)
	}
	if err := readYAML(filepath.Join(dir, "needs.yaml"), &out.needs); err != nil {
		return out, err
	}
	out.objects, err = readDocuments(filepath.Join(dir, "in.yaml"))
	return out, err
}

// readYAML reads a file that may be missing.
func readYAML(path string, into any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a case: %w", err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func readDocuments(path string) ([]map[string]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a case: %w", err)
	}
	var out []map[string]any
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(object) > 0 {
			out = append(out, object)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no object", path)
	}
	return out, nil
}

// sourceObject finds the source watch that an object comes by, and trims it to that watch.
func sourceObject(object map[string]any, watches []drivers.Watch) (drivers.Object, error) {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	parsed, err := schema.ParseGroupVersion(version)
	if err != nil {
		return drivers.Object{}, fmt.Errorf("apiVersion: %w", err)
	}
	var sources []string
	for _, watch := range watches {
		if !watch.Source {
			continue
		}
		sources = append(sources, watch.GVR.GroupVersion().String()+" "+watch.Kind)
		if watch.Kind == kind && watch.GVR.GroupVersion() == parsed {
			return trimmed(object, watch)
		}
	}
	return drivers.Object{}, fmt.Errorf("the driver translates %s, not %s %s", strings.Join(sources, " and "), version, kind)
}

func trimmed(object map[string]any, watch drivers.Watch) (drivers.Object, error) {
	raw, err := json.Marshal(drivers.Trim(object, watch.Fields))
	if err != nil {
		return drivers.Object{}, fmt.Errorf("encoding an object: %w", err)
	}
	return drivers.Object{Watch: watch.Name, Raw: raw}, nil
}

// candidate is an object that may answer needs.
type candidate struct {
	namespace, name string
	labels          labels.Set
	object          drivers.Object
}

// answers returns what answers needs from needs.yaml. A need of a watch that the driver did not declare stays open, as in the
// core.
func (c testCase) answers(watches []drivers.Watch) (func(drivers.Need) ([]drivers.Object, bool), error) {
	unknown, candidates := map[string]bool{}, map[string][]candidate{}
	for name, given := range c.needs {
		at := slices.IndexFunc(watches, func(watch drivers.Watch) bool { return watch.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("needs.yaml: the driver has no watch %q", name)
		}
		if given == "unknown" {
			unknown[name] = true
			continue
		}
		list, ok := given.([]any)
		if !ok {
			return nil, fmt.Errorf("needs.yaml: %s is neither a list nor the word unknown", name)
		}
		for i, element := range list {
			found, err := newCandidate(element, watches[at])
			if err != nil {
				return nil, fmt.Errorf("needs.yaml: %s, object %d: %w", name, i+1, err)
			}
			candidates[name] = append(candidates[name], found)
		}
		slices.SortStableFunc(candidates[name], func(a, b candidate) int {
			return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
		})
	}
	return func(need drivers.Need) ([]drivers.Object, bool) {
		declared := slices.ContainsFunc(watches, func(watch drivers.Watch) bool { return watch.Name == need.Watch })
		selector, err := labels.Parse(need.Selector)
		if err != nil || !declared || unknown[need.Watch] {
			return nil, false
		}
		var out []drivers.Object
		for _, c := range candidates[need.Watch] {
			if c.meets(need, selector) {
				out = append(out, c.object)
			}
		}
		return out, true
	}, nil
}

func newCandidate(element any, watch drivers.Watch) (candidate, error) {
	object, ok := element.(map[string]any)
	if !ok {
		return candidate{}, errors.New("is no object")
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return candidate{}, fmt.Errorf("encoding it: %w", err)
	}
	meta, err := drivers.Object{Watch: watch.Name, Raw: raw}.Meta()
	if err != nil {
		return candidate{}, err
	}
	out := candidate{namespace: meta.Namespace, name: meta.Name, labels: meta.Labels}
	out.object, err = trimmed(object, watch)
	return out, err
}

func (c candidate) meets(need drivers.Need, selector labels.Selector) bool {
	if need.Name != "" {
		return c.name == need.Name && c.namespace == need.Namespace
	}
	return (need.Namespace == "" || c.namespace == need.Namespace) && selector.Matches(c.labels)
}
