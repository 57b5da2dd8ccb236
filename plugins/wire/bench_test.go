// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/pod"
	"github.com/kuryr/raven/plugins/sdktest"
)

// BenchmarkPods is both ends of the boundary without a process between them: the pod driver over gRPC, many calls at
// a time.
func BenchmarkPods(b *testing.B) {
	driver := pod.New()
	values, err := drivers.DefaultValues(driver.Info().Options, nil)
	if err != nil {
		b.Fatal(err)
	}
	client := sdktest.Connect(b, driver)
	if err := client.Configure(b.Context(), values); err != nil {
		b.Fatal(err)
	}
	object := func(size int) drivers.Object {
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{
				"name": "p", "namespace": "shop", "uid": "00000000-0000-0000-0000-000000000001",
				"annotations": map[string]string{"filler": strings.Repeat("x", size)},
			},
			"spec": map[string]any{"nodeName": "node-1"}, "status": map[string]any{"phase": "Pending"},
		})
		if err != nil {
			b.Fatal(err)
		}
		return drivers.Object{Watch: driver.Watches()[0].Name, Raw: raw}
	}
	for _, size := range []int{1 << 10, 30 << 10} {
		raw := object(size)
		for name, d := range map[string]drivers.Driver{"direct": driver, "wire": client} {
			b.Run(fmt.Sprintf("%s-%dKB", name, size>>10), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(64)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := d.Translate(b.Context(), raw, drivers.NewNeeds(nil)); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
