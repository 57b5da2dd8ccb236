// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service/config"
)

// options declares one of everything.
func options() []config.Option {
	return []config.Option{
		{Name: "debug", Type: config.Boolean, Default: "false", Mutable: true},
		{Name: "state_path", Default: "/var/lib/raven"},
		{Name: "log_file"},
		{Group: "g", Name: "text", Default: "t"},
		{Group: "g", Name: "color", Default: "red", Choices: []string{"red", "green"}},
		{Group: "g", Name: "level", Default: "INFO", Choices: []string{"DEBUG", "INFO"}, IgnoreCase: true},
		{Group: "g", Name: "count", Type: config.Integer, Default: "3", Min: new(0.0), Max: new(9999.0)},
		{Group: "g", Name: "bare", Type: config.Integer},
		{Group: "g", Name: "share", Type: config.Float, Default: "0.5", Max: new(1.0)},
		{Group: "g", Name: "flag", Type: config.Boolean, Default: "true"},
		{Group: "g", Name: "port", Type: config.Port, Default: "8082"},
		{Group: "g", Name: "list", Type: config.List, Default: "a,b"},
		{Group: "g", Name: "dict", Type: config.Dict},
		{Group: "g", Name: "many", Type: config.Multi},
		{Group: "g", Name: "wait", Type: config.Duration, Default: "60"},
		{Group: "g", Name: "path", Default: "$state_path/x"},
		{Group: "neutron", Name: "password", Secret: true},
		{
			Group: "neutron", Name: "auth_url", Env: []string{"OS_URL", "IDENTITY_URL"},
			Deprecated: []config.Name{{Group: "neutron_client", Name: "neutron_uri"}},
		},
		{Group: "neutron", Name: "url_with_secret"},
		{Group: "vif_pool", Name: "ports_pool_max", Type: config.Integer, NoEffect: "pools come later"},
		{Group: "driver:pod", Name: "command"},
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, sources config.Sources, text string) (*config.Values, []config.Warning, error) {
	t.Helper()
	if text != "" {
		t.Chdir(t.TempDir())
		sources.Files = append([]string{write(t, "kuryr.conf", text)}, sources.Files...)
	}
	return config.Load(sources, options())
}

func TestValues(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		want map[string]any // by group.name
	}{
		"defaults": {"", map[string]any{
			"DEFAULT.debug": false, "g.text": "t", "g.count": int64(3), "g.bare": nil, "g.share": 0.5, "g.flag": true,
			"g.port": int64(8082),
			"g.list": []string{"a", "b"}, "g.dict": nil, "g.many": nil, "g.wait": time.Minute, "g.path": "/var/lib/raven/x",
		}},
		"no inline comments": {
			"[neutron]\npassword = a#b;c # d", map[string]any{"neutron.password": "a#b;c # d"},
		},
		"a trailing backslash is a value": {
			"[g]\ntext = a\\\ncount = 4", map[string]any{"g.text": `a\`, "g.count": int64(4)},
		},
		"split at the first delimiter": {"[g]\ntext: a=b", map[string]any{"g.text": "a=b"}},
		"outer quotes go":              {"[g]\ntext = \" a \"", map[string]any{"g.text": " a "}},
		"quotes with others inside go": {`[g]` + "\n" + `text = "a"b"`, map[string]any{"g.text": `a"b`}},
		"one quote stays":              {"[g]\ntext = 'a", map[string]any{"g.text": "'a"}},
		"a quoted backtick":            {"[g]\ntext = \"`a\"", map[string]any{"g.text": "`a"}},
		"percent signs stay":           {"[g]\ntext = %(debug)s", map[string]any{"g.text": "%(debug)s"}},
		"continuation": {
			"[g]\nlist = a,\n  b,\n\tc\n\ntext = x", map[string]any{"g.list": []string{"a", "b", "c"}, "g.text": "x"},
		},
		"continuation only":         {"[g]\nlist =\n  a,\n  b", map[string]any{"g.list": []string{"a", "b"}}},
		"continuation keeps hashes": {"[g]\ntext = a\n  # b", map[string]any{"g.text": "a\n# b"}},
		"white space ends it": {
			"[g]\ntext = a\n   \ncount = 7", map[string]any{"g.text": "a", "g.count": int64(7)},
		},
		"a long continuation": {
			"[g]\ntext = a\n  " + strings.Repeat("b", 9000) + "\ncount = 7",
			map[string]any{"g.text": "a\n" + strings.Repeat("b", 9000), "g.count": int64(7)},
		},
		"carriage returns": {
			"[g]\r\ntext = a\r\ncount = 7\r\n", map[string]any{"g.text": "a", "g.count": int64(7)},
		},
		"byte order mark":       {"\ufeff[g]\ntext = a", map[string]any{"g.text": "a"}},
		"last wins":             {"[g]\ntext = a\ntext = b", map[string]any{"g.text": "b"}},
		"last wins, also empty": {"[g]\ntext = a\ntext =", map[string]any{"g.text": ""}},
		"the last list wins":    {"[g]\nlist = a\nlist = b", map[string]any{"g.list": []string{"b"}}},
		"an empty list":         {"[g]\nlist =", map[string]any{"g.list": []string{}}},
		"repeats add up, empty ones too": {
			"[g]\nmany = a\nmany =\nmany = a\nmany = b,c", map[string]any{"g.many": []string{"a", "", "a", "b,c"}},
		},
		"groups in any case": {
			"[G]\ntext = a\n[Driver:Pod]\ncommand = c", map[string]any{"g.text": "a", "driver:pod.command": "c"},
		},
		"a group again": {
			"[g]\ntext = a\n[neutron]\npassword = p\n[G]\ntext = b", map[string]any{"g.text": "b", "neutron.password": "p"},
		},
		"no inheritance":       {"[DEFAULT]\ntext = a", map[string]any{"g.text": "t"}},
		"integers are decimal": {"[g]\ncount = 010", map[string]any{"g.count": int64(10)}},
		"booleans in any case": {
			"[g]\nflag = oFF\n[DEFAULT]\ndebug = yEs", map[string]any{"g.flag": false, "DEFAULT.debug": true},
		},
		"choices in any case": {"[g]\nlevel = debug", map[string]any{"g.level": "DEBUG"}},
		"a dict": {
			"[g]\ndict = a:b, c:d:e", map[string]any{"g.dict": map[string]string{"a": "b", "c": "d:e"}},
		},
		"durations":                {"[g]\nwait = 1h30m", map[string]any{"g.wait": 90 * time.Minute}},
		"durations in seconds":     {"[g]\nwait = 0.5", map[string]any{"g.wait": 500 * time.Millisecond}},
		"an empty integer is none": {"[g]\nbare =", map[string]any{"g.bare": nil}},
		"substitution": {
			"[g]\ntext = ${state_path}/$count and $g.flag/${neutron.password}!\n[neutron]\npassword = p",
			map[string]any{"g.text": "/var/lib/raven/3 and true/p!"},
		},
		"own group before DEFAULT": {"[DEFAULT]\ndebug = true\n[g]\npath = $text", map[string]any{"g.path": "t"}},
		"none becomes empty":       {"[g]\ntext = <$log_file>", map[string]any{"g.text": "<>"}},
		"escapes": {
			"[g]\ntext = a$$count \\$count $5 $ ${ $", map[string]any{"g.text": "a$count $count $5 $ ${ $"},
		},
		"a substituted default is overtaken": {"[DEFAULT]\nstate_path = /s", map[string]any{"g.path": "/s/x"}},
		"a group named in a longer name": {
			"[g]\ntext = ${driver:pod.command}\n[driver:pod]\ncommand = c", map[string]any{"g.text": "c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			values, _, err := load(t, config.Sources{}, tc.file)
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range tc.want {
				dot := strings.LastIndex(key, ".")
				got, _ := values.Lookup(key[:dot], key[dot+1:])
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", key, diff)
				}
			}
		})
	}
}

func TestErrorsAreComplete(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "kuryr.conf", `[g]
count = 10000
flag = t
color = blue

port = 70000
wait = -5
dict = a
text = $nowhere
path = $path
share =
`)
	_, _, err := config.Load(config.Sources{
		Files: []string{"kuryr.conf"}, Environ: []string{"OS_NEUTRON__PASSWORD=hush$hush", "OS_G__BARE=x1"},
		Args: map[config.Name][]string{{Name: "debgu"}: {"1"}},
	}, append(options(), config.Option{Group: "g", Name: "needed", Required: true}))
	want := []string{
		`[g] needed: required, but not set`,
		`command line: [DEFAULT] debgu: no such option; did you mean debug?`,
		`environment OS_G__BARE: [g] bare: "x1" is not an integer; allowed: a whole number`,
		`environment OS_NEUTRON__PASSWORD: [neutron] password: a name after a $ is no known option; write $$ for a dollar sign`,
		`kuryr.conf:2: [g] count: "10000" is too large; allowed: a whole number, from 0 to 9999`,
		`kuryr.conf:3: [g] flag: "t" is not a boolean; allowed: true, 1, on, yes or false, 0, off, no`,
		`kuryr.conf:4: [g] color: "blue" is not one of the choices; allowed: red, green`,
		`kuryr.conf:6: [g] port: "70000" is too large; allowed: a port number, from 0 to 65535`,
		`kuryr.conf:7: [g] wait: "-5" is too small; allowed: a number of seconds, or a number with a unit as in 300ms, 30s, 5m or 1h30m`,
		`kuryr.conf:8: [g] dict: "a" is not a dict; allowed: key:value pairs separated by commas, each key once`,
		`kuryr.conf:9: [g] text: $nowhere is no known option; write $$ for a dollar sign`,
		`kuryr.conf:10: [g] path: refers to itself by way of $path`,
		`kuryr.conf:11: [g] share: the value is empty; allowed: a number, at most 1 (remove the line to use the default, 0.5)`,
	}
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if typed, ok := errors.AsType[*config.Error](err); !ok || typed.Option != "needed" {
		t.Errorf("no *config.Error in %#v", err)
	}
}

func TestMalformedFiles(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"backtick": {
			"[g]\ntext = `a", "kuryr.conf:2: [g]: text: a value that begins with a backtick must stand in double quotes",
		},
		"three quotes": {
			"[g]\n\ntext = \"\"\"a",
			"kuryr.conf:3: [g]: text: a value must not begin with three double quotes; one pair around it is enough",
		},
		"indented first": {
			"[g]\n  text = a", "kuryr.conf:2: [g]: an indented line continues the value above it, and there is none",
		},
		"indented after blank": {
			"[g]\ntext = a\n\n  b", "kuryr.conf:4: [g]: an indented line continues the value above it, and there is none",
		},
		"no delimiter": {
			"[g]\nsecretpassword", "kuryr.conf:2: [g]: neither a [group], nor name = value, nor a comment",
		},
		"unclosed group": {
			"[g\ntext = a",
			"kuryr.conf:1: a group looks like [name], alone on its line\nkuryr.conf:2: option \"text\" stands before any " +
				"group; put [DEFAULT] above it",
		},
		"comment after group": {"[g] # x", "kuryr.conf:1: a group looks like [name], alone on its line"},
		"empty name":          {"[g]\n= a", "kuryr.conf:2: [g]: a value without a name"},
		"automatic name":      {"[g]\n- = a", `kuryr.conf:2: [g]: "-" is not the name of an option`},
		"before any group": {
			"debug = true", `kuryr.conf:1: option "debug" stands before any group; put [DEFAULT] above it`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, config.Sources{}, tc.file)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestPrecedence(t *testing.T) {
	t.Chdir(t.TempDir())
	first := write(t, "first.conf", "[g]\ntext = first\nmany = 1\nlist = 1")
	second := write(t, "second.conf", "[g]\ntext = second\nmany = 2\nlist = 2\ncolor = green")
	write(t, "d/b.conf", "[g]\ntext = dir b\nmany = 4")
	write(t, "d/a.conf", "[g]\ntext = dir a\nmany = 3\ncount = 5")
	write(t, "d/c.txt", "not read")
	sources := config.Sources{
		Files: []string{first, second}, Dirs: []string{"d"},
		Environ: []string{"OS_G__COLOR=red", "OS_URL=", "IDENTITY_URL=http://id", "OS_G__PORT=1"},
		Args:    map[config.Name][]string{{Group: "G", Name: "port"}: {"2", "3"}},
	}
	values, _, err := config.Load(sources, options())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		want   any
		origin string
	}{
		"text":  {"dir b", "d/b.conf:2"},
		"many":  {[]string{"1", "2", "3", "4"}, "d/b.conf:3"},
		"list":  {[]string{"2"}, "second.conf:4"},
		"color": {"red", "environment OS_G__COLOR"},
		"count": {int64(5), "d/a.conf:4"},
		"port":  {int64(3), "command line"},
		"flag":  {true, "default"},
		"bare":  {nil, "not set"},
	} {
		got, _ := values.Lookup("g", name)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if origin := values.Origin("g", name).String(); origin != tc.origin {
			t.Errorf("%s comes from %q, want %q", name, origin, tc.origin)
		}
	}
	if got := values.String("neutron", "auth_url"); got != "http://id" {
		t.Errorf("auth_url = %q: an empty extra variable counts as not set, the next one is read", got)
	}
	sources.Files = append(sources.Files, "missing.conf")
	sources.Dirs = append(sources.Dirs, "missing")
	if _, _, err = config.Load(sources, options()); err == nil || strings.Count(err.Error(), "no such file") != 2 {
		t.Errorf("missing explicit file and folder: %v", err)
	}
}

func TestDefaultPlaces(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "etc/kuryr/kuryr.conf", "")
	write(t, "etc/kuryr.conf", "")
	write(t, "etc/raven.conf", "")
	write(t, "home/.kuryr/raven.conf", "")
	write(t, "etc/kuryr/kuryr.conf.d/x.conf", "")
	got := config.Sources{}.WithDefaults("home", "etc")
	want := config.Sources{
		Files: []string{"etc/kuryr/kuryr.conf", "home/.kuryr/raven.conf"}, Dirs: []string{"etc/kuryr/kuryr.conf.d"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	given := config.Sources{Files: []string{"mine"}}.WithDefaults("home", "etc")
	if diff := cmp.Diff([]string{"mine"}, given.Files); diff != "" || len(given.Dirs) != 1 {
		t.Errorf("a named file turns off the default files only: %+v", given)
	}
}

func TestWarnings(t *testing.T) {
	file := `[g]
tekst = a
password = b
[nuetron]
a = 1
b = 2
[neutron_client]
neutron_uri = http://old
[vif_pool]
ports_pool_max = 3
`
	sources := config.Sources{Environ: []string{"OS_G__COLOUR=red", "OS_CLOUD=x", "OS_OTHER__THING=y"}}
	values, warnings, err := load(t, sources, file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	want := []string{
		"kuryr.conf:8: [neutron_client] neutron_uri: deprecated name; use [neutron] auth_url",
		"kuryr.conf:10: [vif_pool] ports_pool_max: has no effect: pools come later",
		"kuryr.conf:2: [g] tekst: no such option; did you mean text?",
		"kuryr.conf:3: [g] password: no such option; did you mean [neutron] password?",
		"kuryr.conf:4: [nuetron]: no such group; did you mean [neutron]?",
		"environment OS_G__COLOUR: [g] colour: no such option; did you mean color?",
	}
	want[4] = strings.Replace(want[4], ":4:", ":5:", 1) // the first option of the group
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := values.String("neutron", "auth_url"); got != "http://old" {
		t.Errorf("auth_url = %q", got)
	}
	sources.Strict = true
	if _, _, err := load(t, sources, file); err == nil || strings.Count(err.Error(), "no such") != 4 {
		t.Errorf("strict: %v", err)
	}
}

func TestFormerNameLosesWithinAFile(t *testing.T) {
	values, _, err := load(t, config.Sources{}, "[neutron]\nauth_url = new\n[neutron_client]\nneutron_uri = old")
	if err != nil || values.String("neutron", "auth_url") != "new" {
		t.Errorf("auth_url = %q, %v", values.String("neutron", "auth_url"), err)
	}
}

func TestDeclarations(t *testing.T) {
	pod := config.Option{Group: "neutron_defaults", Name: "pod_subnet", Help: "one text", Declarer: "driver pod"}
	same := config.Option{
		Group: "Neutron_Defaults", Name: "pod_subnet", Type: config.String, Help: "another text",
		Declarer: "driver namespace",
	}
	values, _, err := config.Load(config.Sources{}, []config.Option{pod, same})
	if err != nil || len(values.Options()) != 1 {
		t.Fatalf("equal declarations are merged: %v", err)
	}
	same.Default = "x"
	_, _, err = config.Load(config.Sources{},
		[]config.Option{pod, same, {Name: "n", Type: config.Integer, Default: "x", Declarer: "me"}, {Name: "a b"}})
	want := `[neutron_defaults] pod_subnet: declared differently by driver pod and by driver namespace: default differs
[DEFAULT] n: declared by me: its default: "x" is not an integer; allowed: a whole number
[DEFAULT] a b: declared by an unnamed declarer: "a b" is not a name for an option`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestValuesDoNotChange(t *testing.T) {
	values, _, err := load(t, config.Sources{}, "[g]\nlist = a,b\ndict = k:v")
	if err != nil {
		t.Fatal(err)
	}
	values.List("g", "list")[0] = "changed"
	values.Dict("g", "dict")["k"] = "changed"
	picked := values.Pick([]config.Option{
		{Group: "g", Name: "list"}, {Group: "g", Name: "bare"}, {Group: "g", Name: "count"},
	})
	picked["g"]["list"].([]string)[0] = "changed"
	want := map[string]map[string]any{"g": {"list": []string{"a", "b"}, "count": int64(3)}}
	if diff := cmp.Diff(want,
		values.Pick([]config.Option{{Group: "G", Name: "list"}, {Group: "g", Name: "count"}})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := values.Dict("g", "dict")["k"]; got != "v" {
		t.Errorf("dict was changed: %q", got)
	}
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	values, _, err := load(t, config.Sources{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(){
		"not declared":          func() { values.String("g", "nothing") },
		"another type":          func() { values.Int("g", "text") },
		"another type, not set": func() { values.String("g", "bare") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}
