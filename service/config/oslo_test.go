// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kuryr/raven/service/config"
)

// The suite puts the same cases to oslo.config and to this package. What oslo.config answers is in golden.json, which
// generate.py makes, and which TestOsloGoldensAreFresh compares where Debian's python3-oslo.config is installed.
const (
	osloCases     = "testdata/oslo/cases.yaml"
	osloGolden    = "testdata/oslo/golden.json"
	osloGenerator = "testdata/oslo/generate.py"
)

type osloSuite struct {
	Options []osloOption `json:"options"`
	Cases   []osloCase   `json:"cases"`
	Sample  struct {
		Groups  map[string]string `json:"groups"`
		Options []osloOption      `json:"options"`
	} `json:"sample"`
}

type osloCase struct {
	Name    string              `json:"name"`
	Files   map[string]string   `json:"files"`
	Read    []string            `json:"read"`
	Env     map[string]string   `json:"env"`
	CLI     map[string][]string `json:"cli"`
	Differs string              `json:"differs"`
}

type osloOption struct {
	Group         string                         `json:"group"`
	Name          string                         `json:"name"`
	Type          config.Type                    `json:"type"`
	Item          config.Type                    `json:"item"`
	Default       string                         `json:"default"`
	HasDefault    bool                           `json:"has_default"`
	Choices       []string                       `json:"choices"`
	ChoiceHelp    map[string]string              `json:"choice_help"`
	Pattern       string                         `json:"pattern"`
	IgnoreCase    bool                           `json:"ignore_case"`
	MaxLength     int                            `json:"max_length"`
	Schemes       []string                       `json:"schemes"`
	Version       int                            `json:"version"`
	Min           *float64                       `json:"min"`
	Max           *float64                       `json:"max"`
	Help          string                         `json:"help"`
	SampleDefault string                         `json:"sample_default"`
	Declarer      string                         `json:"declarer"`
	Reason        string                         `json:"reason"`
	Since         string                         `json:"deprecated_since"`
	ForRemoval    bool                           `json:"deprecated_for_removal"`
	Deprecated    []struct{ Group, Name string } `json:"deprecated"`
	Secret        bool                           `json:"secret"`
	Required      bool                           `json:"required"`
	Mutable       bool                           `json:"mutable"`
	Advanced      bool                           `json:"advanced"`
}

func (o osloOption) option() config.Option {
	option := config.Option{
		Group: o.Group, Name: o.Name, Type: o.Type, Item: o.Item, Default: o.Default, HasDefault: o.HasDefault,
		Choices:    o.Choices,
		ChoiceHelp: o.ChoiceHelp, Pattern: o.Pattern, IgnoreCase: o.IgnoreCase, MaxLength: o.MaxLength, Schemes: o.Schemes,
		IPVersion: o.Version, Min: o.Min, Max: o.Max, Help: o.Help, SampleDefault: o.SampleDefault, Declarer: o.Declarer,
		Reason: o.Reason, DeprecatedSince: o.Since, DeprecatedForRemoval: o.ForRemoval, Secret: o.Secret,
		Required: o.Required,
		Mutable:  o.Mutable, Advanced: o.Advanced,
	}
	for _, d := range o.Deprecated {
		option.Deprecated = append(option.Deprecated, config.Name{Group: d.Group, Name: d.Name})
	}
	return option
}

func osloOptions(list []osloOption) []config.Option {
	options := make([]config.Option, len(list))
	for i, o := range list {
		options[i] = o.option()
	}
	return options
}

type osloAnswers struct {
	Cases  map[string]map[string]any `json:"cases"`
	Places []string                  `json:"places"`
	Sample string                    `json:"sample"`
}

func readOslo(t *testing.T) (suite osloSuite, answers osloAnswers) {
	t.Helper()
	for path, into := range map[string]any{osloCases: &suite, osloGolden: &answers} {
		text, err := os.ReadFile(path)
		if err == nil {
			err = yaml.UnmarshalStrict(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return suite, answers
}

// refused is how an answer says that a value, or with that as its only key a whole case, is refused.
func refused() map[string]any { return map[string]any{"refused": true} }

// sources writes the files of the case into the present folder.
func (c osloCase) sources(t *testing.T) config.Sources {
	t.Helper()
	s := config.Sources{Args: map[config.Name][]string{}}
	read := c.Read
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		write(t, name, c.Files[name])
		if c.Read == nil {
			read = append(read, name)
		}
	}
	for _, name := range read {
		if dir, isDir := strings.CutSuffix(name, "/"); isDir {
			s.Dirs = append(s.Dirs, dir)
		} else {
			s.Files = append(s.Files, name)
		}
	}
	for name, text := range c.Env {
		s.Environ = append(s.Environ, name+"="+text)
	}
	for key, texts := range c.CLI {
		dot := strings.LastIndex(key, ".")
		s.Args[config.Name{Group: key[:dot], Name: key[dot+1:]}] = texts
	}
	return s
}

// answer is what this package says to a case, in the form of golden.json. With an error there are no values, so that
// only what is refused is known.
func (c osloCase) answer(t *testing.T, options []config.Option) map[string]any {
	t.Helper()
	t.Chdir(t.TempDir())
	values, _, err := config.Load(c.sources(t), options)
	got := map[string]any{}
	if err == nil {
		for _, o := range values.Options() {
			value, _ := values.Lookup(o.Group, o.Name)
			got[o.Group+"."+o.Name] = value
		}
	}
	for _, problem := range problems(err) {
		if problem.Option == "" {
			return refused()
		}
		got[problem.Group+"."+problem.Option] = refused()
	}
	return throughJSON(t, got)
}

func problems(err error) []*config.Error {
	var list []*config.Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if problem, ok := errors.AsType[*config.Error](e); ok {
				list = append(list, problem)
			}
		}
	}
	return list
}

func throughJSON(t *testing.T, value map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var plain map[string]any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestOsloCases fails where this package reads a configuration otherwise than oslo.config does and nobody has said
// why, and where somebody has said why and there is no difference.
func TestOsloCases(t *testing.T) {
	suite, answers := readOslo(t)
	options := osloOptions(suite.Options)
	if len(suite.Cases) != len(answers.Cases) {
		t.Errorf("%d cases, %d answers: two cases have one name, or run %s", len(suite.Cases), len(answers.Cases),
			osloGenerator)
	}
	for _, c := range suite.Cases {
		t.Run(c.Name, func(t *testing.T) {
			said, ok := answers.Cases[c.Name]
			if !ok {
				t.Fatalf("%s has no answer: run %s", osloGolden, osloGenerator)
			}
			got := c.answer(t, options)
			want := said
			if said["refused"] == nil {
				want = maps.Clone(answers.Cases["defaults"])
				maps.Copy(want, said)
				if anyRefused(got) { // then the others are not known
					maps.DeleteFunc(want, func(_ string, v any) bool { return !cmp.Equal(v, any(refused())) })
				}
			}
			diff := cmp.Diff(want, got)
			switch {
			case diff == "" && c.Differs != "":
				t.Errorf("there is no difference any more, though it is said that %s", c.Differs)
			case diff != "" && c.Differs == "":
				t.Errorf("(-oslo.config +service/config):\n%s", diff)
			}
		})
	}
}

func anyRefused(got map[string]any) bool {
	for _, v := range got {
		if cmp.Equal(v, any(refused())) {
			return true
		}
	}
	return false
}

// TestOsloSample compares the sample with that of oslo-config-generator, byte by byte.
func TestOsloSample(t *testing.T) {
	suite, answers := readOslo(t)
	var groups []config.Group
	for name, help := range suite.Sample.Groups {
		groups = append(groups, config.Group{Name: name, Help: help})
	}
	var got bytes.Buffer
	if err := config.Sample(&got, osloOptions(suite.Sample.Options), groups...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(answers.Sample, "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("(-oslo-config-generator +service/config):\n%s", diff)
	}
}

// TestOsloPlaces looks for kuryr.conf and kuryr.conf.d where oslo.config would, in its order.
func TestOsloPlaces(t *testing.T) {
	_, answers := readOslo(t)
	if len(answers.Places) == 0 {
		t.Fatal("no places")
	}
	t.Chdir(t.TempDir())
	var files, dirs []string
	for _, place := range answers.Places {
		place = strings.Replace(place, "~", "home", 1)
		place = strings.TrimPrefix(place, "/")
		files = append(files, write(t, filepath.Join(place, "kuryr.conf"), ""))
		dirs = append(dirs, filepath.Dir(write(t, filepath.Join(place, "kuryr.conf.d", "x.conf"), "")))
	}
	for i := range files {
		got := config.Sources{}.WithDefaults("home", "etc")
		want := config.Sources{Files: files[i : i+1], Dirs: dirs[i : i+1]}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-oslo.config +service/config):\n%s", diff)
		}
		if err := errors.Join(os.Remove(files[i]), os.RemoveAll(dirs[i])); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOsloGoldensAreFresh asks oslo.config again.
func TestOsloGoldensAreFresh(t *testing.T) {
	python := osloPython(t)
	command := exec.CommandContext(t.Context(), python, osloGenerator, osloCases)
	var said bytes.Buffer
	command.Stderr = &said
	got, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	golden(t, osloGolden, string(got))
}

// osloPython finds a Python that knows oslo.config, or skips the test.
func osloPython(t *testing.T) string {
	t.Helper()
	var tried []string
	for _, python := range []string{"/usr/bin/python3", "python3"} { // Debian's packages belong to the former
		out, err := exec.CommandContext(t.Context(), python, "-c", "import oslo_config.generator, yaml").CombinedOutput()
		if err == nil {
			return python
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		tried = append(tried, python+": "+err.Error()+" "+lines[len(lines)-1])
	}
	t.Skipf("the answers of oslo.config are compared with those in %s only: no Python here knows it (%s); apt-get "+
		"install python3-oslo.config python3-yaml",
		osloGolden, strings.Join(tried, "; "))
	return ""
}

// listItem writes an item of a list in Markdown, in lines of up to 118 columns.
func listItem(text string) string {
	var b strings.Builder
	line := "-"
	for word := range strings.FieldsSeq(text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > 118 {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// TestOsloDifferencesAreListed keeps docs/oslo.md at what cases.yaml says; -update writes it.
func TestOsloDifferencesAreListed(t *testing.T) {
	const page, begin, end = "../../docs/oslo.md", "<!-- differences -->\n", "<!-- end of differences -->"
	suite, _ := readOslo(t)
	var list strings.Builder
	for _, c := range suite.Cases {
		if c.Differs != "" {
			list.WriteString(listItem("*" + c.Name + "*: " + strings.ReplaceAll(c.Differs, "_", `\_`) + "."))
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the differences", page)
	}
	golden(t, page, before+begin+list.String()+end+after)
}
