// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	var sources []string
	for _, watch := range watches {
		if !watch.Source {
			continue
		}
		sources = append(sources, described(watch))
		matches, err := drivers.Matches(watch, object)
		if err != nil {
			return drivers.Object{}, err
		}
		if matches {
			return watch.Object(object)
		}
	}
	return drivers.Object{}, fmt.Errorf("the driver translates %s, not this %v %v", strings.Join(sources, " and "),
		object["apiVersion"], object["kind"])
}

// described says what a watch shows, for people.
func described(watch drivers.Watch) string {
	out := watch.GVR.GroupVersion().String() + " " + watch.Kind
	for _, limit := range [][2]string{
		{"in namespace", watch.Namespace}, {"with labels", watch.LabelSelector}, {"with fields", watch.FieldSelector},
	} {
		if limit[1] != "" {
			out += " " + limit[0] + " " + limit[1]
		}
	}
	return out
}

// answers returns what answers needs from needs.yaml. What the core would not answer stays open. An object that its
// watch does not show, by namespace or selector, is absent; one of another apiVersion or kind is a mistake in the
// file.
func (c testCase) answers(watches []drivers.Watch) (func(drivers.Need) ([]drivers.Object, bool), error) {
	unknown, objects := map[string]bool{}, map[string][]map[string]any{}
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
			object, err := ofWatch(watches[at], element)
			if err != nil {
				return nil, fmt.Errorf("needs.yaml: %s, object %d: %w", name, i+1, err)
			}
			objects[name] = append(objects[name], object)
		}
	}
	return func(need drivers.Need) ([]drivers.Object, bool) {
		if unknown[need.Watch] {
			return nil, false
		}
		found, err := drivers.Answer(watches, need, objects[need.Watch])
		return found, err == nil
	}, nil
}

func ofWatch(watch drivers.Watch, element any) (map[string]any, error) {
	object, ok := element.(map[string]any)
	if !ok {
		return nil, errors.New("is no object")
	}
	ofKind := drivers.Watch{Name: watch.Name, GVR: watch.GVR, Kind: watch.Kind}
	if matches, err := drivers.Matches(ofKind, object); err != nil || !matches {
		return nil,
			errors.Join(err,
				fmt.Errorf("is %v %v, where the watch is of %s", object["apiVersion"], object["kind"], described(ofKind)))
	}
	_, err := drivers.Matches(watch, object)
	return object, err
}
