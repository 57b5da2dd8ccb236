// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdk"
	"github.com/kuryr/raven/service/host/confine"
)

// The test binary is a Raven that becomes a driver, too, and the drivers: started with "driver:<name>" it serves one.
func TestMain(m *testing.M) {
	if confine.Called(os.Args) {
		confine.Main(os.Args)
	}
	if len(os.Args) > 1 {
		if name, ok := strings.CutPrefix(os.Args[1], "driver:"); ok {
			sdk.Serve(&namer{name: name})
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// namer is a driver that makes a network of each object of the resource that it is called by, with a prefix in front of
// the object's name.
type namer struct {
	name   string
	prefix string
	told   []string // the drivers that are enabled
}

func (d *namer) Core(capabilities []string) {
	d.told = nil
	for _, name := range []string{configmaps, serviceaccounts} {
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
		Namespace: testNamespace, Source: true,
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
