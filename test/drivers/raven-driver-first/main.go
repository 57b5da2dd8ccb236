// SPDX-License-Identifier: Apache-2.0

// Command raven-driver-first is a driver of the first released contract. contract.binpb describes that contract, and
// the driver knows no other: its messages are made from the description, and it uses nothing of today's Raven. Tests
// run it under today's Raven. It must never be changed to suit today's Raven: that it runs as it is, is what it shows.
package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

//go:embed contract.binpb
var described []byte

// answers are what the driver answers, in protobuf's JSON; set.json is a Set with every message of the first contract.
//
//go:embed answers
var answers embed.FS

func main() {
	service, err := contract()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("RAVEN_LIFELINE_FD") == "3" {
		go func() {
			_, _ = io.Copy(io.Discard, os.NewFile(3, "lifeline"))
			os.Exit(0)
		}()
	}
	driver := &first{service: service}
	const most = 64 << 20
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: 1, MagicCookieKey: "RAVEN_PLUGIN", MagicCookieValue: "raven-driver-v1",
		},
		Plugins: plugin.PluginSet{"driver": driver},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options,
				grpc.MaxRecvMsgSize(most), grpc.MaxSendMsgSize(most), grpc.UnknownServiceHandler(driver.serve))...)
		},
	})
}

// contract is the service that the first contract describes.
func contract() (protoreflect.ServiceDescriptor, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(described, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	found, err := files.FindDescriptorByName("raven.v1.DriverService")
	if err != nil {
		return nil, err
	}
	service, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no service", found.FullName())
	}
	return service, nil
}

// first serves the contract.
type first struct {
	plugin.NetRPCUnsupportedPlugin
	service protoreflect.ServiceDescriptor

	mu       sync.Mutex // guards what follows
	colour   string
	draining bool
}

// GRPCServer implements plugin.GRPCPlugin. Nothing is registered: the server hands every call of the contract to serve.
func (*first) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }

// GRPCClient implements plugin.GRPCPlugin; it is for hosts.
func (*first) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is no host")
}

// serve serves a call of any method, a stream or not: it answers each message with one, until there are no more.
func (f *first) serve(_ any, stream grpc.ServerStream) error {
	called, _ := grpc.MethodFromServerStream(stream)
	method := f.service.Methods().ByName(protoreflect.Name(path.Base(called)))
	if method == nil || called != fmt.Sprintf("/%s/%s", f.service.FullName(), method.Name()) {
		return status.Errorf(codes.Unimplemented, "the first contract has no %s", called)
	}
	for {
		request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
		if err := stream.RecvMsg(request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := f.answer(string(method.Name()), request, response); err != nil {
			return err
		}
		if err := stream.SendMsg(response); err != nil {
			return err
		}
	}
}

// answer fills the response to a request of the method.
func (f *first) answer(method string, request, response *dynamicpb.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(request)
	if err != nil {
		return err
	}
	switch method {
	case "GetInfo":
		return fill(response, "info.json", nil)
	case "Configure":
		return f.configure(asked, response)
	case "Drain":
		f.draining = true
		return nil
	}
	return f.translate(asked, response)
}

// values are what a Set depends on: name, namespace and node of the Pod, and a zone.
type values map[string]string

// fill fills a message with an answer, in which these values stand.
func fill(message proto.Message, answer string, v values) error {
	text, err := answers.ReadFile("answers/" + answer)
	if err != nil {
		return err
	}
	return protojson.Unmarshal([]byte(os.Expand(string(text), func(name string) string {
		quoted, _ := json.Marshal(v[name]) // a string always can be
		return string(quoted[1 : len(quoted)-1])
	})), message)
}

func (f *first) configure(request []byte, response proto.Message) error {
	var asked struct {
		Values []struct {
			Name         string
			StringValue  string `json:"string_value"`
			IntegerValue int64  `json:"integer_value,string"`
		}
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		return err
	}
	for _, value := range asked.Values {
		switch {
		case value.Name == "colour":
			f.colour = value.StringValue
		case value.Name == "depth" && value.IntegerValue < 0:
			return fill(response, "refusal.json", nil)
		}
	}
	return fill(response, "watches.json", nil)
}

// item is one object to translate.
type item struct {
	ID      string
	Object  struct{ JSON []byte }
	Answers []struct {
		Need  need
		State string
	}
}

// need is what the driver asks for: the Pod's Namespace.
type need struct {
	Watch string `json:"watch"`
	Name  string `json:"name"`
}

// result is what an item gets, but for its Set.
type result struct {
	ID         string    `json:"id"`
	Needs      []need    `json:"needs,omitempty"`
	Error      *refusal  `json:"error,omitempty"`
	Unanswered *struct{} `json:"unanswered,omitempty"`
}

// refusal is an item's error.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *first) translate(request []byte, response *dynamicpb.Message) error {
	var asked struct{ Items []item }
	if err := json.Unmarshal(request, &asked); err != nil {
		return err
	}
	results := response.Mutable(response.Descriptor().Fields().ByName("results")).List()
	for _, item := range asked.Items {
		given := results.AppendMutable().Message()
		said, values := f.translateItem(item)
		text, err := json.Marshal(said)
		if err != nil {
			return err
		}
		if err := protojson.Unmarshal(text, given.Interface()); err != nil {
			return err
		}
		if values == nil {
			continue
		}
		set := given.Mutable(given.Descriptor().Fields().ByName("set")).Message()
		if err := fill(set.Interface(), "set.json", values); err != nil {
			return err
		}
	}
	return nil
}

// translateItem is the item's result, and the values of its Set if it has one.
func (f *first) translateItem(item item) (result, values) {
	refuse := func(code, why string) (result, values) {
		return result{ID: item.ID, Error: &refusal{Code: code, Message: why}}, nil
	}
	if f.draining {
		return refuse("ERROR_CODE_CANCELLED", "draining")
	}
	var pod struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct{ NodeName string }
	}
	if err := json.Unmarshal(item.Object.JSON, &pod); err != nil {
		return refuse("ERROR_CODE_TERMINAL", err.Error())
	}
	namespace := need{Watch: "namespaces", Name: pod.Metadata.Namespace}
	for _, answer := range item.Answers {
		if answer.State == "" {
			return refuse("ERROR_CODE_INVALID", "an answer has no state")
		}
		if answer.Need != namespace {
			continue
		}
		zone := "none"
		if answer.State == "ANSWER_STATE_PRESENT" {
			zone = "some"
		}
		return result{ID: item.ID, Needs: []need{namespace}}, values{
			"name": pod.Metadata.Name, "namespace": namespace.Name, "node": pod.Spec.NodeName, "zone": zone + "-" + f.colour,
		}
	}
	return result{ID: item.ID, Needs: []need{namespace}, Unanswered: &struct{}{}}, nil
}
