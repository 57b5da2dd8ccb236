// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kuryr/raven/plugins/wire"
)

// TestTheBaselineHasAll: what the baseline lacks could be renumbered or dropped, and `make lint` would not see it.
func TestTheBaselineHasAll(t *testing.T) {
	raw, err := os.ReadFile("../proto/baseline.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var baseline descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &baseline); err != nil {
		t.Fatal(err)
	}
	has := map[string]int32{}
	for _, file := range baseline.GetFile() {
		for _, message := range file.GetMessageType() {
			for _, field := range message.GetField() {
				has[message.GetName()+"."+field.GetName()] = field.GetNumber()
			}
		}
		for _, enum := range file.GetEnumType() {
			for _, value := range enum.GetValue() {
				has[enum.GetName()+"."+value.GetName()] = value.GetNumber()
			}
		}
	}
	want := func(name string, number int32) {
		if got, ok := has[name]; !ok || got != number {
			t.Errorf("%s = %d is not in the baseline (%d): .ci/proto breaking, then .ci/proto baseline", name, number, got)
		}
	}
	messages, enums := wire.Contract().Messages(), wire.Contract().Enums()
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			want(string(messages.Get(i).Name())+"."+string(fields.Get(j).Name()), int32(fields.Get(j).Number()))
		}
	}
	for i := range enums.Len() {
		values := enums.Get(i).Values()
		for j := range values.Len() {
			want(string(enums.Get(i).Name())+"."+string(values.Get(j).Name()), int32(values.Get(j).Number()))
		}
	}
}
