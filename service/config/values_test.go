// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kuryr/raven/service/config"
)

func TestDiff(t *testing.T) {
	before, _, err := load(t, config.Sources{}, "[neutron]\npassword = old\n[g]\nlist = a")
	if err != nil {
		t.Fatal(err)
	}
	after, _, err := load(t, config.Sources{}, "[DEFAULT]\ndebug = 1\n[neutron]\npassword = new\n[g]\nlist = a\nbare = 1")
	if err != nil {
		t.Fatal(err)
	}
	at := func(line int) config.Origin {
		return config.Origin{Source: config.FromFile, File: "kuryr.conf", Line: line}
	}
	want := []config.Change{
		{Group: "DEFAULT", Name: "debug", Old: false, New: true, Mutable: true, Origin: at(2)},
		{Group: "g", Name: "bare", New: int64(1), Origin: at(7)},
		{Group: "neutron", Name: "password", Old: "old", New: "new", Secret: true, Origin: at(4)},
	}
	changes := config.Diff(before, after)
	if diff := cmp.Diff(want, changes, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := changes[2].String(); text != "[neutron] password: **** -> **** (kuryr.conf:4)" {
		t.Errorf("the secret shows: %s", text)
	}
	if len(config.Diff(after, after)) != 0 {
		t.Error("no change is a change")
	}
}

func TestSecretsStayHidden(t *testing.T) {
	values, _, err := load(t, config.Sources{}, "[neutron]\npassword = hush\nurl_with_secret = http://u:$password@h")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := values.Show(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "hush") || !strings.Contains(b.String(), "password = ****") ||
		!strings.Contains(b.String(), "# kuryr.conf:2") {
		t.Errorf("shown:\n%s", b.String())
	}
	if diff := cmp.Diff([]string{"hush", "http://u:hush@h"}, values.Secrets()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, _, err = config.Load(config.Sources{Environ: []string{"OS_G__PIN=topsecret"}},
		[]config.Option{{Group: "g", Name: "pin", Type: config.Integer, Secret: true}})
	if err == nil || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("the error shows the secret or is none: %v", err)
	}
}

// A password that stands in a URI is a secret, whatever the option is called.
func TestPasswordsInURIsStayHidden(t *testing.T) {
	options := []config.Option{{Name: "root", Type: config.URI}, {Name: "roots", Type: config.List}}
	read := func(text string) (*config.Values, error) {
		path := write(t, filepath.Join(t.TempDir(), "kuryr.conf"), "[DEFAULT]\n"+text+"\n")
		values, _, err := config.Load(config.Sources{Files: []string{path}}, options)
		return values, err
	}
	before, err := read("root = http://u:hush@h/x\nroots = http://u:hush2@h,http://h")
	if err != nil {
		t.Fatal(err)
	}
	after, err := read("root = http://u:hush3@h/x")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := errors.Join(before.Show(&b), before.ShowChanged(&b)); err != nil {
		t.Fatal(err)
	}
	for _, change := range config.Diff(before, after) {
		b.WriteString(change.String())
	}
	if _, err := read("root = http://u:hush4@h with a blank"); err == nil {
		t.Error("a URI with a blank is taken")
	} else {
		b.WriteString(err.Error())
	}
	if text := b.String(); strings.Contains(text, "hush") || !strings.Contains(text, "http://u:****@h/x") {
		t.Errorf("shown:\n%s", text)
	}
	if diff := cmp.Diff([]string{"hush", "hush2"}, before.Secrets()); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
}

func TestEncodeIsReadBack(t *testing.T) {
	texts := []string{
		"", "a", " a ", "a#b;c", "$x ${y} $$", `"q"`, "'q'", "`b", `""c`, "a\nb\n# c", "x=y:z", `back\`, "%(x)s", "\"", "'",
	}
	var opts []config.Option
	values := map[config.Name][]string{}
	for i, text := range texts {
		n := config.Name{Group: "Gr", Name: "o" + string(rune('a'+i))}
		opts = append(opts, config.Option{Group: n.Group, Name: n.Name})
		values[n] = []string{text}
	}
	opts = append(opts, config.Option{Name: "many", Type: config.Multi})
	values[config.Name{Name: "many"}] = []string{"1", "2"}
	path := write(t, filepath.Join(t.TempDir(), "kuryr.conf"), string(config.Encode(values)))
	got, warnings, err := config.Load(config.Sources{Files: []string{path}, Strict: true}, opts)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %v in:\n%s", err, warnings, config.Encode(values))
	}
	for i, text := range texts {
		if read := got.String("gr", "o"+string(rune('a'+i))); read != text {
			t.Errorf("wrote %q, read %q", text, read)
		}
	}
	if diff := cmp.Diff([]string{"1", "2"}, got.List("", "many")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzFile shows that any text is either read or refused with a typed error, and that no line is lost.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"[g]\ntext = a", "[g]\ntext =\n b\n\n[G]\nmany=x\nmany=", "[a]b]\nx=1", "[g]\ntext=a\x00\x0b\n x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, filepath.Join(t.TempDir(), "k.conf"), text)
		_, _, err := config.Load(config.Sources{Files: []string{path}},
			[]config.Option{{Group: "g", Name: "text"}, {Group: "g", Name: "many", Type: config.Multi}})
		if err == nil {
			return
		}
		if typed, ok := errors.AsType[*config.Error](err); !ok || strings.Contains(typed.Message, "cannot be read") {
			t.Errorf("%q: %v", text, err)
		}
	})
}
