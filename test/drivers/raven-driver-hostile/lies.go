// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	ravenv1 "github.com/kuryr/raven/plugins/proto/raven/v1"
	"github.com/kuryr/raven/plugins/wire"
)

// perform plays a driver that breaks the contract from the beginning. It returns for one that does so later.
func perform(lie string) {
	switch lie {
	case "other-protocol":
		fmt.Fprintln(os.Stdout, "1|99|unix|/nowhere|grpc|")
		select {}
	case "other-place": // another process's socket
		fmt.Fprintf(os.Stdout, "1|1|unix|%s|grpc|\n", os.Args[2])
		select {}
	case "garbage-socket": // what answers there is no gRPC
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix",
			os.Getenv(plugin.EnvUnixSocketDir)+"/plugin")
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stdout, "1|1|unix|%s|grpc|\n", listener.Addr())
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(strings.Repeat("garbage\r\n", 1000)))
		}
	case "garbage-line":
		fmt.Fprintln(os.Stdout, strings.Repeat("\x00\xff|", 100_000))
		select {}
	case "silent":
		select {}
	case "other-name", "odd-version", "many-capabilities", "garbage-answers", "never", "endless-info", "long-info",
		"many-options", "chain", "crowd", "giant", "long-result":
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig: wire.Handshake(), GRPCServer: plugin.DefaultGRPCServer,
			Plugins: plugin.PluginSet{wire.PluginName: &liar{lie: lie}},
		})
		os.Exit(0)
	}
}

// liar speaks the protocol by hand, and wrongly.
type liar struct {
	plugin.NetRPCUnsupportedPlugin
	ravenv1.UnimplementedDriverServiceServer
	lie string
}

func (l *liar) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	ravenv1.RegisterDriverServiceServer(server, l)
	return nil
}

func (l *liar) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

func (l *liar) GetInfo(ctx context.Context, _ *ravenv1.GetInfoRequest) (*ravenv1.GetInfoResponse, error) {
	info := &ravenv1.GetInfoResponse{Name: "hostile", Version: "6.6.6"}
	switch l.lie {
	case "other-name":
		info.Name = "pod"
	case "odd-version": // it would change the title of an operator's terminal
		info.Version = "6.6.6\x1b]0;hacked\a"
	case "many-capabilities":
		info.Capabilities = make([]string, 10_000)
	case "endless-info":
		<-ctx.Done()
	case "long-info":
		info.Description = strings.Repeat("x", 2<<20)
	case "many-options": // little to send, much to decode
		info.Options = make([]*ravenv1.Option, 500_000)
	}
	return info, nil
}

func (l *liar) Configure(context.Context, *ravenv1.ConfigureRequest) (*ravenv1.ConfigureResponse, error) {
	return &ravenv1.ConfigureResponse{}, nil
}

func (l *liar) Drain(ctx context.Context, _ *ravenv1.DrainRequest) (*ravenv1.DrainResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (l *liar) Translate(stream grpc.BidiStreamingServer[ravenv1.TranslateRequest, ravenv1.TranslateResponse]) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if l.lie == "never" {
			continue
		}
		if slices.Contains([]string{"chain", "crowd", "giant", "long-result"}, l.lie) {
			if err := stream.Send(&ravenv1.TranslateResponse{Results: l.exaggerate(request.GetItems())}); err != nil {
				return err
			}
			continue
		}
		response := &ravenv1.TranslateResponse{Results: []*ravenv1.TranslateResult{{Id: 1 << 60}, {}, nil}}
		for _, item := range request.GetItems() {
			response.Results = append(response.Results,
				// without an outcome
				&ravenv1.TranslateResult{Id: item.GetId()},
				// and once more
				&ravenv1.TranslateResult{Id: item.GetId(), Outcome: &ravenv1.TranslateResult_Set{Set: &ravenv1.Set{}}},
				// and for another
				&ravenv1.TranslateResult{
					Id: item.GetId() + 1, Outcome: &ravenv1.TranslateResult_Unanswered{Unanswered: &ravenv1.Unanswered{}},
				})
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// exaggerate answers the object that is called so with more than anybody needs: resources that wait for each other,
// one after the other, or nothing, many times. Any other gets nothing.
func (l *liar) exaggerate(items []*ravenv1.TranslateItem) []*ravenv1.TranslateResult {
	var results []*ravenv1.TranslateResult
	for _, item := range items {
		set := &ravenv1.Set{}
		switch {
		case !strings.Contains(string(item.GetObject().GetJson()), `"name":"`+l.lie+`"`):
		case l.lie == "giant": // more than a message may have
			set.Undecided = []string{strings.Repeat("x", 40<<20)}
		case l.lie == "long-result": // which fits in a message, and is more than one object may have
			set.Undecided = []string{strings.Repeat("x", 9<<20)}
		case l.lie == "crowd":
			set.Resources = make([]*ravenv1.Resource, 1_000_000)
		default:
			for i := range 5000 {
				set.Resources = append(set.Resources, &ravenv1.Resource{
					Name: fmt.Sprint(i), After: []*ravenv1.Ref{{Target: &ravenv1.Ref_Name{Name: fmt.Sprint(i + 1)}}},
					Spec: &ravenv1.Resource_Network{Network: &ravenv1.Network{}},
				})
			}
		}
		results = append(results, &ravenv1.TranslateResult{Id: item.GetId(), Outcome: &ravenv1.TranslateResult_Set{Set: set}})
	}
	return results
}
