// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/plugins/sdk"
)

// networks gives every Namespace a network.
type networks struct{}

func (networks) Info() drivers.Info {
	return drivers.Info{
		Name: "networks", Description: "A network for every namespace.", Kinds: []drivers.Kind{drivers.KindNetwork},
	}
}

func (networks) Configure(context.Context, drivers.Values) error { return nil }

func (networks) Watches() []drivers.Watch {
	return []drivers.Watch{{
		Name: "namespaces", GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
		Source: true,
	}}
}

func (networks) Translate(ctx context.Context, object drivers.Object, _ *drivers.Needs) (drivers.Set, error) {
	namespace, err := object.Meta()
	if err != nil {
		return drivers.Set{}, err // no opinion: what exists for the object stays
	}
	drivers.Logger(ctx).Debug("translating", "namespace", namespace.Name) // a line of Raven's log
	return drivers.Set{
		Resources: []drivers.Resource{{Name: "network", Spec: drivers.Network{Name: new(namespace.Name)}}},
	}, nil
}

// This is the main function of a driver's program, raven-driver-networks. Raven starts it; by hand it answers --help
// and --version, and serves under a debugger with --debug. The build sets the version.
func Example() {
	version := "1.2.3"
	sdk.Serve(networks{}, sdk.Version(version))
}

// A driver whose translations take long may translate more objects at a time than there are processors.
func ExampleWorkers() {
	sdk.Serve(networks{}, sdk.Workers(32))
}
