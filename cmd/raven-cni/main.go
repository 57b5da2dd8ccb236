// SPDX-License-Identifier: Apache-2.0

// Command raven-cni is a CNI plugin that hands each request to the node's daemon, `raven node run`, over a Unix socket.
// It must never do anything by itself.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/kuryr/raven/service/node/cniapi"
)

// version is set by the build.
var version = "dev"

func main() {
	spoken := types100.ImplementedSpecVersion // until the configuration says which
	call := func(command string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return run(command, args, &spoken) }
	}
	failed := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: call(cniapi.Add), Del: call(cniapi.Del), Check: call(cniapi.Check), GC: call(cniapi.GC),
		Status: call(cniapi.Status),
	}, cniversion.All, "CNI plugin raven-cni "+version+": plugs pods into the Neutron ports that Raven has made")
	if failed == nil {
		return
	}
	// The library's own printing leaves out the version, which the specification wants.
	text, err := json.Marshal(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{spoken, failed})
	if err != nil {
		text = []byte(failed.Error())
	}
	fmt.Println(string(text))
	os.Exit(1)
}

// conf is what is read of the configuration; the daemon reads the rest.
type conf struct {
	types.NetConf
	Socket string `json:"socket"`
}

// run asks the daemon, and notes which version of the specification the configuration has.
func run(command string, args *skel.CmdArgs, spoken *string) error {
	var c conf
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return types.NewError(types.ErrDecodingFailure, "the configuration on standard input cannot be read", err.Error())
	}
	*spoken = c.CNIVersion
	if c.Socket == "" {
		c.Socket = cniapi.DefaultSocket
	}
	answer, err := cniapi.Call(context.Background(), c.Socket, cniapi.Request{
		Command: command, ContainerID: args.ContainerID, Netns: args.Netns, IfName: args.IfName, Args: args.Args,
		Config: args.StdinData,
	})
	if err != nil || command != cniapi.Add {
		return err
	}
	result, err := types100.NewResult(answer)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "the daemon's answer cannot be read", err.Error())
	}
	return types.PrintResult(result, c.CNIVersion)
}
