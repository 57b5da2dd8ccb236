// Command raven-driver-first is a driver of the first released contract: contract/ holds its text and the code that was generated from it
// then, and what is here uses nothing else of Raven. It is for tests, which run it under today's Raven. It must never be changed to suit
// today's Raven: that it runs as it is, is what it shows.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	contract "github.com/kuryr/raven/test/drivers/raven-driver-first/contract"
)

func main() {
	if os.Getenv("RAVEN_LIFELINE_FD") == "3" {
		go func() {
			_, _ = io.Copy(io.Discard, os.NewFile(3, "lifeline"))
			os.Exit(0)
		}()
	}
	const most = 64 << 20
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "RAVEN_PLUGIN", MagicCookieValue: "raven-driver-v1"},
		Plugins:         plugin.PluginSet{"driver": &first{}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(most), grpc.MaxSendMsgSize(most))...)
		},
	})
}

// first serves the contract by hand.
type first struct {
	plugin.NetRPCUnsupportedPlugin
	contract.UnimplementedDriverServiceServer

	mu       sync.Mutex
	colour   string
	draining bool
}

// GRPCServer implements plugin.GRPCPlugin.
func (f *first) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	contract.RegisterDriverServiceServer(server, f)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin; it is for hosts.
func (*first) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is no host")
}

// GetInfo implements the contract.
func (*first) GetInfo(context.Context, *contract.GetInfoRequest) (*contract.GetInfoResponse, error) {
	text := func(s string) *string { return &s }
	return &contract.GetInfoResponse{
		Name: "first", Version: "1", Description: "Everything that the first contract knows.", Sdk: "none",
		Options: []*contract.Option{
			{Group: "first", Name: "colour", Type: contract.OptionType_OPTION_TYPE_STRING, Default: text("red"), Choices: []string{"red", "blue"}, Help: "Which."},
			{Group: "first", Name: "depth", Type: contract.OptionType_OPTION_TYPE_INTEGER, Default: text("3"), Help: "How deep."},
			{Group: "first", Name: "ranges", Type: contract.OptionType_OPTION_TYPE_LIST, Default: text("10.0.0.0/8"), Help: "From where."},
		},
		Kinds: []string{
			"network", "subnet", "subnetpool", "router", "router_interface", "port", "floatingip", "security_group", "security_group_rule", "lookup",
		},
		Annotations: []string{"first.example/port"}, Labels: []string{"first.example/zone"},
	}, nil
}

// Configure implements the contract.
func (f *first) Configure(_ context.Context, request *contract.ConfigureRequest) (*contract.ConfigureResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, value := range request.GetValues() {
		switch value.GetName() {
		case "colour":
			f.colour = value.GetStringValue()
		case "depth":
			if value.GetIntegerValue() < 0 {
				return &contract.ConfigureResponse{Diagnostics: []*contract.ConfigureDiagnostic{{
					Severity: contract.Severity_SEVERITY_ERROR, Group: "first", Name: "depth", Message: "must not be negative",
				}}}, nil
			}
		}
	}
	return &contract.ConfigureResponse{Watches: []*contract.Watch{
		{Name: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Fields: []string{"spec.nodeName"}, Source: true},
		{Name: "namespaces", Version: "v1", Resource: "namespaces", Kind: "Namespace", Fields: []string{"metadata.labels"}},
	}}, nil
}

// Drain implements the contract.
func (f *first) Drain(context.Context, *contract.DrainRequest) (*contract.DrainResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draining = true
	return &contract.DrainResponse{}, nil
}

// Translate implements the contract.
func (f *first) Translate(stream grpc.BidiStreamingServer[contract.TranslateRequest, contract.TranslateResponse]) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		response := &contract.TranslateResponse{}
		for _, item := range request.GetItems() {
			response.Results = append(response.Results, f.translate(item))
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func refused(id uint64, code contract.ErrorCode, why string) *contract.TranslateResult {
	return &contract.TranslateResult{Id: id, Outcome: &contract.TranslateResult_Error{Error: &contract.TranslateError{Code: code, Message: why}}}
}

func (f *first) translate(item *contract.TranslateItem) *contract.TranslateResult {
	f.mu.Lock()
	colour, draining := f.colour, f.draining
	f.mu.Unlock()
	if draining {
		return refused(item.GetId(), contract.ErrorCode_ERROR_CODE_CANCELLED, "draining")
	}
	var pod struct {
		Metadata struct{ Name, Namespace string }
		Spec     struct{ NodeName string }
	}
	if err := json.Unmarshal(item.GetObject().GetJson(), &pod); err != nil {
		return refused(item.GetId(), contract.ErrorCode_ERROR_CODE_TERMINAL, err.Error())
	}
	need := &contract.Need{Watch: "namespaces", Name: pod.Metadata.Namespace}
	result := &contract.TranslateResult{Id: item.GetId(), Needs: []*contract.Need{need}}
	for _, answer := range item.GetAnswers() {
		if answer.GetState() == contract.AnswerState_ANSWER_STATE_UNSPECIFIED {
			return refused(item.GetId(), contract.ErrorCode_ERROR_CODE_INVALID, "an answer has no state")
		}
		if answer.GetNeed().GetWatch() != need.GetWatch() || answer.GetNeed().GetName() != need.GetName() {
			continue
		}
		zone := "none"
		if answer.GetState() == contract.AnswerState_ANSWER_STATE_PRESENT {
			zone = "some"
		}
		result.Outcome = &contract.TranslateResult_Set{Set: everything(pod.Metadata.Name, pod.Metadata.Namespace, pod.Spec.NodeName, zone+"-"+colour)}
		return result
	}
	result.Outcome = &contract.TranslateResult_Unanswered{Unanswered: &contract.Unanswered{}}
	return result
}
