// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"reflect"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kuryr/raven/drivers"
	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
)

// decodeCost bounds the memory that decoding takes, by the length of what is decoded: an empty element has two bytes
// and becomes a message of some hundred.
func decodeCost(raw []byte) uint64 { return 1<<20 + 512*uint64(len(raw)) }

// allocated is how much memory was allocated in all until now.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// decode decodes as the core does, and fails the test if that takes too much memory.
func decode(t *testing.T, raw []byte, into proto.Message) error {
	t.Helper()
	before := allocated()
	err := newSparing().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, into)
	if took := allocated() - before; took > decodeCost(raw) {
		t.Errorf("decoding %d bytes took %d bytes of memory", len(raw), took)
	}
	return err
}

// seedSet has one of each part of a Set.
func seedSet() drivers.Set {
	role := drivers.Role{Kind: "Namespace", Name: "shop", Role: drivers.PodNetwork}
	return drivers.Set{
		Resources: []drivers.Resource{
			{Name: "network", Spec: drivers.Network{Name: new("shop"), MTU: new(int64(1400))}, Exports: []string{"side"}},
			{
				Name: "subnet", Expand: 3, OnDelete: drivers.Retain, Claim: "pool", After: []drivers.Ref{{Name: "network"}},
				Spec: drivers.Subnet{
					NetworkID: drivers.From("network"), IPVersion: new(int64(4)), DNSNameservers: []string{},
					HostRoutes: []drivers.Route{{Destination: "10.0.0.0/8", NextHop: "10.1.0.1"}},
				},
			},
			{Name: "port", Spec: drivers.Port{
				NetworkID:      drivers.FromRole(role),
				FixedIPs:       []drivers.FixedIP{{SubnetID: drivers.Text("s"), IPAddress: "10.0.0.2"}},
				SecurityGroups: []drivers.Value{drivers.Text("g"), {}},
			}},
			{Name: "fip", Spec: drivers.FloatingIP{FloatingNetworkID: drivers.Text("n"), PortID: drivers.Empty()}},
		},
		Contributions: []drivers.Contribution{
			{Name: "route", Target: role, Attribute: "routes", Route: &drivers.Route{Destination: "::/0", NextHop: "fe80::1"}},
			{Name: "group", Target: role, Attribute: "security_groups", SecurityGroup: drivers.From("x"), Mode: drivers.Replace},
			{
				Name: "pair", Target: role, Attribute: "allowed_address_pairs",
				AddressPair: &drivers.AddressPair{IPAddress: "10.0.0.0/8"},
			},
			{Name: "switch", Target: role, Attribute: "networks", Resource: drivers.From("network")},
		},
		Outputs: []drivers.Output{
			{Kind: drivers.Annotation, Key: "kuryr.org/port", Document: &drivers.Ref{Name: "port", Attribute: "subnet"}},
			{Kind: drivers.Label, Key: "l", Text: drivers.Text("x")},
			{Kind: drivers.Ingress, Key: "4", Text: drivers.From("fip", "floating_ip_address")},
		},
		Diagnostics: []drivers.Diagnostic{{Severity: drivers.Warning, Reason: "Bad", Message: "it is bad", Resource: "port"}},
		Undecided:   []string{"later"},
	}
}

// FuzzTranslateResponse reads any bytes as a driver's message of the stream: they are refused, or become Sets that go
// over the wire again as they are. Neither takes much memory.
func FuzzTranslateResponse(f *testing.F) {
	set, err := SetToProto(seedSet())
	if err != nil {
		f.Fatal(err)
	}
	needs := answering(set, &ravenv1.Set{})
	needs.Results[1].Needs = []*ravenv1.Need{{Watch: "pods", Namespace: "shop", Selector: "app=web"}}
	refused := &ravenv1.TranslateResponse{Results: []*ravenv1.TranslateResult{
		failed(&ravenv1.TranslateResult{Id: 7}, &Error{Code: Terminal, Message: "no"}),
	}}
	for _, message := range []proto.Message{answering(set), needs, refused, answering(empties(3))} {
		raw, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		answer := &ravenv1.TranslateResponse{}
		if decode(t, raw, answer) != nil {
			return
		}
		if len(answer.GetResults()) > MaxAnswerResults {
			t.Errorf("%d results", len(answer.GetResults()))
		}
		for _, result := range answer.GetResults() {
			_ = checkCounts(result)
			if result.GetSet() != nil {
				sameOverTheWire(t, result.GetSet())
			}
		}
	})
}

// sameOverTheWire reads a Set, writes it, and reads that: both must be the same.
func sameOverTheWire(t *testing.T, message *ravenv1.Set) {
	t.Helper()
	set, err := SetFromProto(message)
	if err != nil {
		return
	}
	again, err := SetToProto(set)
	if err != nil {
		t.Fatalf("what was read cannot be written: %v", err)
	}
	back, err := SetFromProto(again)
	if err != nil {
		t.Fatalf("what was written cannot be read: %v", err)
	}
	if !reflect.DeepEqual(set, back) { // cmp.Diff, which would say the same, takes long
		t.Errorf("read twice (-first +second):\n%s", cmp.Diff(set, back))
	}
}

// FuzzDriverReplies reads any bytes as a driver's answers to GetInfo and Configure.
func FuzzDriverReplies(f *testing.F) {
	info, err := InfoToProto(drivers.Info{
		Name: "x", Kinds: drivers.Kinds(), Annotations: []string{"a/b"}, Status: []string{drivers.StatusLoadBalancer},
		Options: []drivers.Option{
			{Group: "x", Name: "ports", Type: drivers.ListOption, Item: drivers.PortOption, Default: "80,443", HasDefault: true},
			{Group: "x", Name: "count", Type: drivers.IntegerOption, Min: new(float64(1)), Choices: []string{"1", "2"}},
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	configured := &ravenv1.ConfigureResponse{
		Watches: watchesToProto([]drivers.Watch{
			{Name: "pods", Kind: "Pod", LabelSelector: "a=b", Fields: []string{"spec"}, Source: true},
		}),
		Diagnostics: []*ravenv1.ConfigureDiagnostic{
			{Severity: ravenv1.Severity_SEVERITY_ERROR, Group: "x", Name: "ports", Message: "\x1b[2J"},
		},
	}
	for _, message := range []proto.Message{info, configured} {
		raw, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		reply := &ravenv1.ConfigureResponse{}
		if decode(t, raw, reply) == nil {
			_ = refused(reply.GetDiagnostics())
			watches := watchesFromProto(reply.GetWatches())
			if diff := cmp.Diff(watches, watchesFromProto(watchesToProto(watches))); diff != "" {
				t.Errorf("watches read twice (-first +second):\n%s", diff)
			}
		}
		message := &ravenv1.GetInfoResponse{}
		if decode(t, raw, message) != nil {
			return
		}
		info, err := InfoFromProto(message)
		if err != nil {
			return
		}
		again, err := InfoToProto(info)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := InfoFromProto(again)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(info, back); diff != "" {
			t.Errorf("read twice (-first +second):\n%s", diff)
		}
	})
}

// FuzzCoreRequests reads any bytes as the core's requests, as a driver's end does.
func FuzzCoreRequests(f *testing.F) {
	values, err := ValuesToProto(drivers.Values{"x": {
		"a": "text", "b": int64(1), "c": true, "d": 0.5, "e": []string{"f"}, "g": map[string]string{"h": "i"},
	}})
	if err != nil {
		f.Fatal(err)
	}
	pods := drivers.Need{Watch: "pods", Namespace: "shop", Selector: "app=web"}
	item := NewItem(drivers.Object{Watch: "services", Raw: []byte(`{}`)}, map[drivers.Need][]drivers.Object{
		pods: {{Watch: "pods", Raw: []byte(`{"kind":"Pod"}`)}}, {Watch: "settings", Name: "x"}: nil,
	}, 2)
	for _, message := range []proto.Message{values, &ravenv1.TranslateRequest{Items: []*ravenv1.TranslateItem{item}}} {
		raw, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		request := &ravenv1.TranslateRequest{}
		if proto.Unmarshal(raw, request) == nil {
			for _, item := range request.GetItems() {
				sameAnswers(t, item.GetAnswers())
			}
		}
		configure := &ravenv1.ConfigureRequest{}
		if proto.Unmarshal(raw, configure) != nil {
			return
		}
		values, err := ValuesFromProto(configure)
		if err != nil {
			return
		}
		again, err := ValuesToProto(values)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := ValuesFromProto(again)
		if diff := cmp.Diff(values, back, cmpopts.EquateNaNs()); err != nil || diff != "" {
			t.Errorf("read twice: %v (-first +second):\n%s", err, diff)
		}
	})
}

func sameAnswers(t *testing.T, messages []*ravenv1.Answer) {
	t.Helper()
	answers, err := answersFromProto(messages)
	if err != nil {
		return
	}
	back, err := answersFromProto(answersToProto(answers))
	if diff := cmp.Diff(answers, back); err != nil || diff != "" {
		t.Errorf("read twice: %v (-first +second):\n%s", err, diff)
	}
}
