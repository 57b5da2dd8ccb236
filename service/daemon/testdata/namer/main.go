// SPDX-License-Identifier: Apache-2.0

// Command namer is a driver that makes a network of each object of a core resource, with a prefix in front of the
// object's name, and says in its version which drivers are enabled. Its arguments are its own name, which is the
// resource's, and the namespace. The tests of the daemon run it. It is no part of the test binary because making
// certificates takes many times as long with the race detector.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdk"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: namer RESOURCE NAMESPACE")
		os.Exit(2)
	}
	sdk.Serve(&namer{name: os.Args[1], namespace: os.Args[2]})
}

type namer struct {
	name      string
	namespace string
	prefix    string
	told      []string // the drivers that are enabled
}

func (d *namer) Core(capabilities []string) {
	d.told = nil
	for _, name := range []string{"configmaps", "serviceaccounts"} {
		if slices.Contains(capabilities, drivers.DriverCapability(name)) {
			d.told = append(d.told, name)
		}
	}
}

func (d *namer) Info() drivers.Info {
	return drivers.Info{
		Name: d.name, Kinds: []drivers.Kind{drivers.KindNetwork}, Version: "beside " + strings.Join(d.told, " and "),
		Options: []drivers.Option{{
			Group: d.name, Name: "prefix", Type: drivers.StringOption, HasDefault: true,
			Default: d.name + "-", Help: "A prefix.",
		}},
	}
}

func (d *namer) Configure(_ context.Context, values drivers.Values) error {
	d.prefix = values.String(d.name, "prefix")
	return nil
}

func (d *namer) Watches() []drivers.Watch {
	kind := map[string]string{"configmaps": "ConfigMap", "serviceaccounts": "ServiceAccount"}[d.name]
	return []drivers.Watch{{
		Name: "sources", GVR: schema.GroupVersionResource{Version: "v1", Resource: d.name}, Kind: kind,
		Namespace: d.namespace, Source: true,
	}}
}

func (d *namer) Translate(_ context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
	meta, err := object.Meta()
	if err != nil {
		return drivers.Set{}, fmt.Errorf("reading the object: %w", err)
	}
	return drivers.Set{Resources: []drivers.Resource{{
		Name: "network",
		Spec: drivers.Network{Name: new(d.prefix + meta.Name)},
	}}}, nil
}
