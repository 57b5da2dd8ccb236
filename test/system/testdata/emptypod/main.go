// Command emptypod is the pod driver after an upgrade gone wrong: it answers every question, and always with the empty Set. It
// is for tests, and must never be installed.
package main

import (
	"context"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/plugins/sdk"
)

func main() { sdk.Serve(empty{pod.New()}) }

type empty struct{ drivers.Driver }

// Info implements drivers.Driver.
func (e empty) Info() drivers.Info {
	info := e.Driver.Info()
	info.Version = "2-empty"
	return info
}

// Translate implements drivers.Driver.
func (e empty) Translate(context.Context, drivers.Object, *drivers.Needs) (drivers.Set, error) {
	return drivers.Set{}, nil
}
