// SPDX-License-Identifier: Apache-2.0

// Package cniapi is what raven-cni and a node's daemon say to each other: HTTP with JSON over a Unix socket. It must
// stay small, since the plugin is started for each pod.
package cniapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/containernetworking/cni/pkg/types"
)

// Path is where the daemon takes requests, with the version of this protocol.
const Path = "/v1/cni"

// DefaultSocket is where the daemon is asked unless the plugin's configuration says otherwise.
const DefaultSocket = "/run/raven-node/cni.sock"

// The commands of the CNI specification that are handed on.
const (
	Add    = "ADD"
	Del    = "DEL"
	Check  = "CHECK"
	GC     = "GC"
	Status = "STATUS"
)

// MaxBody bounds a request and an answer, in bytes.
const MaxBody = 4 << 20

// Request is one call of the plugin: CNI's parameters, and its configuration as it came on standard input.
type Request struct {
	Command     string          `json:"command"`
	ContainerID string          `json:"containerID,omitempty"`
	Netns       string          `json:"netns,omitempty"`
	IfName      string          `json:"ifName,omitempty"`
	Args        string          `json:"args,omitempty"`
	Config      json.RawMessage `json:"config,omitempty"`
}

// Call asks the daemon. The result is a CNI result of version 1.1.0, or empty. The error is a *types.Error.
func Call(ctx context.Context, socket string, r Request) (json.RawMessage, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the request cannot be encoded", err.Error())
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://raven-node"+Path, bytes.NewReader(body))
	if err != nil {
		return nil, types.NewError(types.ErrInternal, "the request cannot be made", err.Error())
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, away(r.Command, socket, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, MaxBody))
	if err != nil {
		return nil, away(r.Command, socket, err)
	}
	if response.StatusCode == http.StatusOK {
		return text, nil
	}
	var refused types.Error
	if err := json.Unmarshal(text, &refused); err != nil || refused.Code == 0 {
		return nil, types.NewError(types.ErrInternal, fmt.Sprintf("the daemon of raven-node at %s has answered %s: is it "+
			"of another version than the plugin?", socket, response.Status), string(text))
	}
	return nil, &refused
}

// away says that the daemon is not there. The specification has a code of its own for that in STATUS.
func away(command, socket string, err error) error {
	code := uint(types.ErrTryAgainLater)
	if command == Status {
		code = types.ErrPluginNotAvailable
	}
	var op *net.OpError
	text := err.Error()
	if errors.As(err, &op) {
		text = op.Err.Error()
	}
	return types.NewError(code, fmt.Sprintf("the daemon of raven-node does not answer at %s (%s): look at its log, and "+
		"at the option socket of both", socket, text), "")
}
