// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// taken decodes a message as the core does and returns about how much memory that took in all.
func taken(tb testing.TB, message, into proto.Message) (uint64, error) {
	tb.Helper()
	raw, err := proto.Marshal(message)
	if err != nil {
		tb.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = newSparing().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, into)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

func answering(sets ...*ravenv1.Set) *ravenv1.TranslateResponse {
	response := &ravenv1.TranslateResponse{}
	for i, set := range sets {
		response.Results = append(response.Results, &ravenv1.TranslateResult{
			Id: uint64(i + 1), Outcome: &ravenv1.TranslateResult_Set{Set: set},
		})
	}
	return response
}

func empties(count int) *ravenv1.Set {
	return &ravenv1.Set{Resources: make([]*ravenv1.Resource, count)}
}

// TestWhatADriverSaysTakesLittle: whatever few bytes a driver sends, they do not become much memory.
func TestWhatADriverSaysTakesLittle(t *testing.T) {
	small := &ravenv1.Set{Undecided: []string{"x"}}
	for name, tc := range map[string]struct {
		message, into proto.Message
		refuses       string // the message as a whole
		errs          []string
	}{
		"empty results": {
			&ravenv1.TranslateResponse{Results: make([]*ravenv1.TranslateResult, 4<<20)}, &ravenv1.TranslateResponse{},
			"more than 8192 results", nil,
		},
		"a long result": {
			answering(&ravenv1.Set{Undecided: []string{strings.Repeat("x", MaxResult)}}, small), &ravenv1.TranslateResponse{},
			"",
			[]string{"bytes long, more than 8388608", ""},
		},
		"a result of many": {
			answering(empties(MaxResultElements), small), &ravenv1.TranslateResponse{}, "",
			[]string{"more than 524288 elements", ""},
		},
		"many results of many": {
			answering(empties(450_000), empties(450_000), empties(450_000), empties(450_000), small),
			&ravenv1.TranslateResponse{}, "",
			[]string{"", "", "more than", "more than", ""},
		},
		"many options": {
			&ravenv1.GetInfoResponse{Options: make([]*ravenv1.Option, 500_000)}, &ravenv1.GetInfoResponse{},
			"more than 65536 elements", nil,
		},
		"many texts": {
			&ravenv1.GetInfoResponse{Kinds: make([]string, 500_000)}, &ravenv1.GetInfoResponse{}, "more than 65536 elements",
			nil,
		},
		"many watches": {
			&ravenv1.ConfigureResponse{Watches: make([]*ravenv1.Watch, 500_000)}, &ravenv1.ConfigureResponse{},
			"more than 65536 elements", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bytes, err := taken(t, tc.message, tc.into)
			if tc.refuses == "" && err != nil || tc.refuses != "" && (err == nil || !strings.Contains(err.Error(), tc.refuses)) {
				t.Errorf("got %v", err)
			}
			if bytes > 400<<20 {
				t.Errorf("it took %d MiB", bytes>>20)
			}
			t.Logf("%d MiB", bytes>>20)
			if tc.errs == nil {
				return
			}
			results := tc.into.(*ravenv1.TranslateResponse).GetResults()
			if len(results) != len(tc.errs) {
				t.Fatalf("%d results", len(results))
			}
			for i, result := range results {
				message := result.GetError().GetMessage()
				if result.GetId() != uint64(i+1) || (message == "") != (tc.errs[i] == "") ||
					!strings.Contains(message, tc.errs[i]) {
					t.Errorf("result %d: id %d: %s", i+1, result.GetId(), message)
				}
			}
		})
	}
}

// TestALargeServiceFits: 5,000 endpoints behind each of ten ports, in a load balancer of either kind.
func TestALargeServiceFits(t *testing.T) {
	octavia := drivers.LoadBalancer{VIPSubnetID: drivers.Text("s")}
	ovn := drivers.OVNLoadBalancer{GroupID: drivers.Text("g")}
	for p := range int64(10) {
		pool := drivers.Pool{Name: fmt.Sprintf("port-%d:TCP:%d", p, p+1)}
		vip := drivers.OVNVIP{Protocol: "TCP", Address: drivers.Text("10.0.0.9"), Port: p + 1}
		for i := range int64(5000) {
			address := fmt.Sprintf("10.100.%d.%d", 100+i/250, i%250)
			pool.Members = append(pool.Members, drivers.Member{
				Name: "default/a-name-of-some-length-5d59d67564-" + fmt.Sprint(i), Address: address, ProtocolPort: &p, Weight: &p,
				SubnetID: drivers.FromRole(drivers.Role{Kind: "Namespace", Name: "default", Role: drivers.PodSubnet}),
			})
			vip.Backends = append(vip.Backends, drivers.OVNBackend{Address: address, Port: 8080})
		}
		octavia.Pools, ovn.VIPs = append(octavia.Pools, pool), append(ovn.VIPs, vip)
	}
	for _, spec := range []drivers.Spec{octavia, ovn} {
		set, err := SetToProto(drivers.Set{Resources: []drivers.Resource{{Name: "x", Spec: spec}}})
		if err != nil {
			t.Fatal(err)
		}
		response := answering(set)
		back := &ravenv1.TranslateResponse{}
		if _, err := taken(t, response, back); err != nil || back.GetResults()[0].GetError() != nil {
			t.Errorf("%s: %d bytes: %v %v", spec.Kind(), proto.Size(response), err, back.GetResults()[0].GetError())
		}
		t.Logf("%s: %d bytes", spec.Kind(), proto.Size(response))
	}
}

// TestErrorTexts are for logs, Events and terminals.
func TestErrorTexts(t *testing.T) {
	long := "hacked\x1b]0;title\a\nnext " + strings.Repeat("ä", MaxErrorText)
	for _, got := range []string{
		errorFromProto(&ravenv1.TranslateError{Message: long}).Message,
		refused([]*ravenv1.ConfigureDiagnostic{{Severity: ravenv1.Severity_SEVERITY_ERROR, Message: long}}).Error(),
	} {
		if !strings.HasPrefix(got, "hacked�]0;title�\nnext ä") || len(got) > MaxErrorText+16 {
			t.Errorf("%d bytes: %.40q", len(got), got)
		}
	}
}
