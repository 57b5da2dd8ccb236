// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/config"
)

// types are those of one value.
func types() []config.Type {
	return []config.Type{
		config.String, config.Integer, config.Float, config.Boolean, config.Port, config.List, config.Dict, config.Duration,
		config.IP,
		config.CIDR, config.URI, config.Hostname, config.HostAddress,
	}
}

// FuzzEncode reads any text as a file, writes what was read, and reads that: it must be the same.
func FuzzEncode(f *testing.F) {
	for _, seed := range []string{
		"[g]\ntext = a", "[g]\ntext = \"a # b\"\nmany = x\nmany = $y\nmany = $$z",
		"[g]\ntext = a\n b\n\tc\n[DEFAULT]\nother = ${g.text}",
		"[g]\ntext = 'q'\nmany = \"\"\nmany = \\", "other = 1\n[ g ]\nTEXT : 2", "[g]\ntext = a;b#c\nmany = =:",
	} {
		f.Add(seed)
	}
	options := []config.Option{{Group: "g", Name: "text"}, {Group: "g", Name: "many", Type: config.Multi}, {Name: "other"}}
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		read := func(name, text string) (*config.Values, error) {
			path := write(t, filepath.Join(dir, name), text)
			values, _, err := config.Load(config.Sources{Files: []string{path}}, options)
			return values, err
		}
		first, err := read("a.conf", text)
		if err != nil {
			return
		}
		values := map[config.Name][]string{}
		for _, o := range options {
			if first.Origin(o.Group, o.Name).Source != config.FromFile {
				continue
			}
			given := valueTexts(first, o.Key())
			if slices.ContainsFunc(given, unwritable) {
				return
			}
			values[o.Key()] = given
		}
		encoded := string(config.Encode(values))
		second, err := read("b.conf", encoded)
		if err != nil {
			t.Fatalf("%q was written as %q: %v", text, encoded, err)
		}
		for name, given := range values {
			if got := valueTexts(second, name); !slices.Equal(given, got) {
				t.Errorf("%s = %q was written as %q and read as %q", name, given, encoded, got)
			}
		}
	})
}

// valueTexts returns the one text of an option, or all of a Multi.
func valueTexts(values *config.Values, name config.Name) []string {
	value, _ := values.Lookup(name.Group, name.Name)
	switch value := value.(type) {
	case string:
		return []string{value}
	case []string:
		return value
	}
	return nil
}

// unwritable says that a value has what Encode's callers must not give it.
func unwritable(value string) bool {
	lines := strings.Split(value, "\n")
	return slices.ContainsFunc(lines, func(line string) bool {
		return strings.TrimSpace(line) != line || line == "" && len(lines) > 1
	})
}

// FuzzValue reads any text as a value of any type, and what it was read as once more: an address or a name that was
// accepted is accepted again, and is the same.
func FuzzValue(f *testing.F) {
	for i, seed := range []string{
		"a", "-1", "0.5e3", "yes", "65535", "a,'b,c',,d", "k:v,k2:v2", "1h30m", "fd00::1%eth0", "10.0.0.0/8",
		"https://u:p@h:1/p?q#f",
		"xn--a.example.", "[::1]",
	} {
		f.Add(uint8(i), seed)
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		option := config.Option{Group: "g", Name: "value", Type: types()[int(kind)%len(types())]}
		read := func(text string) (*config.Values, error) {
			values, _, err := config.Load(config.Sources{Args: map[config.Name][]string{option.Key(): {text}}},
				[]config.Option{option})
			return values, err
		}
		values, err := read(text)
		if err != nil {
			return
		}
		switch option.Type { //nolint:exhaustive // the others are written in several ways
		case config.IP, config.CIDR, config.URI, config.Hostname, config.HostAddress:
			first := values.String("g", "value")
			again, err := read(strings.ReplaceAll(first, "$", "$$"))
			if err != nil {
				t.Fatalf("%s %q was read as %q, which is refused: %v", option.Type, text, first, err)
			}
			if second := again.String("g", "value"); first != second {
				t.Errorf("%s %q was read as %q and then as %q", option.Type, text, first, second)
			}
		}
	})
}
