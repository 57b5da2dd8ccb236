// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/service/web"
)

var update = flag.Bool("update", false, "write the types of the web page")

// TestTypeScript sees to it that the web page's types are those of the documents that it is served.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	g := &typeScript{texts: map[string]string{}}
	for _, document := range []any{
		web.Overview{}, web.Topology{}, web.Page{}, web.Found{}, Report{}, Descriptions{},
	} {
		g.of(reflect.TypeOf(document))
	}
	slices.Sort(g.names)
	var b strings.Builder
	b.WriteString("// Code generated from the Go types by `make generate`. DO NOT EDIT.\n")
	for _, name := range g.names {
		b.WriteString(g.texts[name])
	}
	const path = "../../web/src/types.ts"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != b.String() {
		t.Errorf("web/src/types.ts is stale: run make generate (%v)", err)
	}
}

// typeScript renders Go types as encoding/json encodes them.
type typeScript struct {
	names []string
	texts map[string]string
}

func (g *typeScript) of(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // others are in no document
	case reflect.Pointer:
		return g.of(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64, reflect.Float64:
		return "number"
	case reflect.Slice:
		return g.of(t.Elem()) + "[] | null"
	case reflect.Map:
		return "Record<string, " + g.of(t.Elem()) + "> | null"
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return "string"
		}
		return g.define(t)
	}
	return "unknown"
}

func (g *typeScript) define(t reflect.Type) string {
	name := t.Name()
	for _, one := range []string{"Status", "Stats"} { // several packages have one
		if name == one {
			name = strings.ToUpper(t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:][:1]) +
				t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+2:] + name
		}
	}
	if _, ok := g.texts[name]; ok {
		return name
	}
	g.texts[name] = "" // it may refer to itself
	g.names = append(g.names, name)
	g.texts[name] = fmt.Sprintf("\nexport interface %s {\n%s}\n", name, g.fields(t))
	return name
}

func (g *typeScript) fields(t reflect.Type) string {
	var b strings.Builder
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "":
			b.WriteString(g.fields(f.Type))
			continue
		case tag == "-" || !f.IsExported():
			continue
		case tag == "":
			tag = f.Name
		}
		optional := ""
		if strings.Contains(options, "omit") {
			optional = "?"
		}
		of := g.of(f.Type)
		if optional != "" {
			of = strings.TrimSuffix(of, " | null")
		}
		fmt.Fprintf(&b, "  %s%s: %s;\n", tag, optional, of)
	}
	return b.String()
}
