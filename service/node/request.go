// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/kuryr/raven/service/node/cniapi"
	"github.com/kuryr/raven/service/openvswitch"
)

// The codes of errors: CNI's own, and this plugin's from 100 on. See docs/cni.md.
const (
	codeNotAvailable = types.ErrPluginNotAvailable // STATUS: the daemon cannot work now
	codeRefused      = 100                         // what the annotations say is refused
	codeChanged      = 101                         // CHECK: it is not as it was plugged in
)

func failure(code uint, format string, args ...any) *types.Error {
	return types.NewError(code, fmt.Sprintf(format, args...), "")
}

// asCNI gives every error a code.
func asCNI(err error) *types.Error {
	var coded *types.Error
	var ns *netnsError
	var unavailable *openvswitch.UnavailableError
	var moved *movedError
	switch {
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &ns):
		return failure(types.ErrInvalidNetNS, "%v", err)
	case errors.As(err, &unavailable), errors.As(err, &moved), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, errOvertaken), errors.Is(err, errStopping):
		return failure(types.ErrTryAgainLater, "%v", err)
	}
	return failure(types.ErrInternal, "%v", err)
}

// sandbox is the part of a request that names an interface.
type sandbox struct {
	ID, Netns, IfName string
}

func (s sandbox) key() string  { return s.ID + " " + s.IfName }
func (s sandbox) link() string { return hostName(s.ID, s.IfName) }

// podRef is the pod of a request, as the kubelet calls it.
type podRef struct{ Namespace, Name, UID string }

func (p podRef) String() string { return p.Namespace + "/" + p.Name }

// podArgs are CNI_ARGS as container runtimes of Kubernetes set them: the fields' names are the keys.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:revive // see above
	K8S_POD_NAME      types.UnmarshallableString //nolint:revive // see above
	K8S_POD_UID       types.UnmarshallableString //nolint:revive // see above
}

func parsePod(args string) (podRef, error) {
	parsed := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args, &parsed); err != nil {
		return podRef{}, failure(types.ErrInvalidEnvironmentVariables, "CNI_ARGS cannot be read: %v", err)
	}
	ref := podRef{string(parsed.K8S_POD_NAMESPACE), string(parsed.K8S_POD_NAME), string(parsed.K8S_POD_UID)}
	if ref.Namespace == "" || ref.Name == "" {
		return ref, failure(types.ErrInvalidEnvironmentVariables,
			"CNI_ARGS has no K8S_POD_NAMESPACE or no K8S_POD_NAME: this plugin serves pods of Kubernetes only")
	}
	return ref, nil
}

// netConf is what is read of the plugin's configuration.
type netConf struct {
	types.NetConf
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments"`
}

func parseConf(text json.RawMessage) (netConf, error) {
	var c netConf
	if err := json.Unmarshal(text, &c); err != nil {
		return c, failure(types.ErrDecodingFailure, "the plugin's configuration cannot be read: %v", err)
	}
	return c, nil
}

// sandboxOf checks the part of a request that names an interface.
func sandboxOf(r cniapi.Request, needNetns bool) (sandbox, error) {
	s := sandbox{r.ContainerID, r.Netns, r.IfName}
	switch {
	case !containerIDs().MatchString(s.ID):
		return s, failure(types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID %q is no container id", short(s.ID))
	case !interfaceNames().MatchString(s.IfName) || s.IfName == "." || s.IfName == "..":
		return s, failure(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME %q is no name of an interface", short(s.IfName))
	case needNetns && s.Netns == "":
		return s, failure(types.ErrInvalidEnvironmentVariables, "CNI_NETNS is empty")
	}
	return s, nil
}

func containerIDs() *regexp.Regexp   { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`) }
func interfaceNames() *regexp.Regexp { return regexp.MustCompile(`^[^/:\s]{1,15}$`) }

// previous is the result of the ADD that a CHECK comes after.
func (c netConf) previous() (*types100.Result, error) {
	if len(c.RawPrevResult) == 0 {
		return nil, failure(types.ErrInvalidNetworkConfig, "CHECK has no prevResult: the runtime gives it")
	}
	text, err := json.Marshal(c.RawPrevResult)
	if err != nil {
		return nil, failure(types.ErrDecodingFailure, "prevResult cannot be read: %v", err)
	}
	result, err := types100.NewResult(text)
	if err != nil {
		return nil, failure(types.ErrDecodingFailure, "prevResult cannot be read: %v", err)
	}
	return types100.NewResultFromResult(result)
}
