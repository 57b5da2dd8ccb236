// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr/raven/drivers/networkpolicy/semantics"
	"github.com/kuryr/raven/service/daemon"
	"github.com/kuryr/raven/service/watch"
)

// The exit statuses of raven policy explain, beside those of all commands.
const (
	exitClosed = 2
	exitDiffer = 3
)

const explainHelp = `Say whether NetworkPolicies allow a connection from or to a pod, by which policy and which rule:
from the policies' own text, and from the security groups and rules that Neutron has for the pods' ports; and where the
two differ, with what to do. Nothing is written, and no daemon is asked.

--from and --to take a pod (NAMESPACE/NAME), an address or a CIDR; the address of a pod means that pod. Without
both, all pods of the cluster are gone through, at this pod's side, and what differs is shown.
--port takes PORT/PROTOCOL, for example 80/tcp. Without it, all ports of TCP, UDP and SCTP are.

A connection needs the egress of the pod where it begins and the ingress of the one where it ends. Services are
allowed by their endpoints: ask for these.

Exit statuses: 0 allowed (on some port, where several are asked for), 2 closed, 3 policies and cloud differ, 1 an
error. Without --from and --to: 0 nothing differs, 3 something does.`

func newPolicyCommand(flags *globalFlags, io streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Say what NetworkPolicies allow",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var from, to, port, format string
	explain := &cobra.Command{
		Use:   "explain NAMESPACE/POD",
		Short: "Say whether a connection is allowed, by the policies and by the cloud, and where they differ",
		Long:  explainHelp,
		Example: `  raven policy explain shop/web --from shop/cart --port 80/tcp
  raven policy explain shop/web --from 203.0.113.0/24
  raven policy explain shop/web --to 10.0.0.5 --port 53/udp -o json
  raven policy explain shop/web                  which policies isolate it; do the groups do the same?`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			q := question{pod: args[0]}
			if err := q.parse(from, to, port); err != nil {
				return statusError{exitUsage, err}
			}
			return runExplain(cmd.Context(), flags, io, q, format)
		},
	}
	f := explain.Flags()
	f.StringVar(&from, "from", "", "the `end` where the connection begins: NAMESPACE/POD, an address or a CIDR")
	f.StringVar(&to, "to", "", "the `end` that it goes to: NAMESPACE/POD, an address or a CIDR")
	f.StringVar(&port, "port", "", "the `port` that it goes to, as in 80/tcp (default: all)")
	f.StringVarP(&format, "output", "o", "table", "output `format`: table, json or yaml")
	cmd.AddCommand(explain)
	return cmd
}

// question is what is asked for.
type question struct {
	pod   string
	peers []asked
	port  *semantics.PortRange
}

// asked is the other end of a connection.
type asked struct {
	direction string       // of the pod: from is ingress, to is egress
	pod       string       // namespace/name; empty: Range
	addresses netip.Prefix // of a peer that is no pod
}

func (q *question) parse(from, to, port string) error {
	if !isPodName(q.pod) {
		return fmt.Errorf("%q: it must be NAMESPACE/POD, for example shop/web", q.pod)
	}
	for _, end := range [][2]string{{"from", from}, {"to", to}} {
		if end[1] == "" {
			continue
		}
		one := asked{direction: end[0]}
		address, err := netip.ParseAddr(end[1])
		switch prefix, perr := netip.ParsePrefix(end[1]); {
		case err == nil:
			one.addresses = netip.PrefixFrom(address, address.BitLen())
		case perr == nil:
			one.addresses = prefix.Masked()
		case isPodName(end[1]):
			one.pod = end[1]
		default:
			return fmt.Errorf("--%s %q: it must be NAMESPACE/POD, an address or a CIDR", end[0], end[1])
		}
		if one.pod == q.pod {
			return fmt.Errorf("--%s %s is the pod itself, and a pod always reaches itself", end[0], end[1])
		}
		q.peers = append(q.peers, one)
	}
	if port == "" {
		return nil
	}
	number, protocol, _ := strings.Cut(port, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	of := corev1.Protocol(strings.ToUpper(protocol))
	if protocol == "" {
		of = corev1.ProtocolTCP
	}
	protocols := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	if err != nil || n == 0 || !slices.Contains(protocols, of) {
		return fmt.Errorf("--port %q: it must be PORT/PROTOCOL, for example 80/tcp; protocols are tcp, udp and sctp", port)
	}
	q.port = &semantics.PortRange{Protocol: of, First: int32(n), Last: int32(n)}
	return nil
}

func isPodName(text string) bool {
	namespace, name, ok := strings.Cut(text, "/")
	return ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// explanation is `raven policy explain -o json`.
type explanation struct {
	FormatVersion int    `json:"formatVersion"`
	Pod           string `json:"pod"`
	Cluster       string `json:"cluster"`
	// Ingress and Egress are the policies that isolate the pod.
	Ingress []string `json:"ingressIsolatedBy"`
	Egress  []string `json:"egressIsolatedBy"`
	// Groups are the names of the security groups of the pod's port.
	Groups []string `json:"securityGroups"`
	Notes  []string `json:"notes,omitempty"`
	// Connections are those that were asked for; without one, those at which something differs.
	Connections []explained `json:"connections"`
	// Compared is how many pods were gone through where no connection was asked for.
	Compared int `json:"compared,omitempty"`
}

// explained is one connection.
type explained struct {
	From  string           `json:"from"`
	To    string           `json:"to"`
	Cases []semantics.Case `json:"cases"`
}

func runExplain(ctx context.Context, flags *globalFlags, io streams, q question, format string) error {
	values, err := flags.loader().LoadCore()
	if err != nil {
		return err
	}
	rest, err := watch.RESTConfig(values, version)
	if err != nil {
		return err
	}
	clients, err := watch.NewClients(rest)
	if err != nil {
		return err
	}
	defer clients.Close()
	cloud, err := daemon.OpenCloud(ctx, values, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer cloud.Close()
	e := &explainer{objects: clients.Dynamic, cloud: cloud.Neutron}
	if e.cluster, err = configuredCluster(ctx, values, ""); err != nil {
		return err
	}
	answer, err := e.explain(ctx, q)
	if err != nil {
		return err
	}
	if format == "table" {
		printExplanation(io, answer)
	} else if err := structured(io.out, format, answer); err != nil {
		return err
	}
	return answer.status(len(q.peers) > 0)
}

// status makes an exit status of an explanation.
func (e explanation) status(asked bool) error {
	closed := false
	for _, c := range e.Connections {
		reached := false
		for i := range c.Cases {
			if c.Cases[i].Differ {
				return statusError{status: exitDiffer}
			}
			reached = reached || c.Cases[i].Allowed
		}
		closed = closed || asked && !reached
	}
	if closed {
		return statusError{status: exitClosed}
	}
	return nil
}

func printExplanation(io streams, e explanation) {
	fmt.Fprintf(io.out, "%s\n", io.paint(bold, "Pod "+e.Pod))
	for _, d := range []struct {
		name string
		by   []string
	}{{"ingress", e.Ingress}, {"egress", e.Egress}} {
		text := "no policy isolates it, and everything is allowed"
		if len(d.by) > 0 {
			text = "isolated by " + strings.Join(d.by, ", ")
		}
		fmt.Fprintf(io.out, "  %-8s %s\n", d.name, text)
	}
	fmt.Fprintf(io.out, "  %-8s %s\n", "groups", strings.Join(e.Groups, ", "))
	for _, note := range e.Notes {
		fmt.Fprintf(io.out, "  %s %s\n", io.paint(yellow, "!"), note)
	}
	for _, c := range e.Connections {
		fmt.Fprintf(io.out, "\n%s\n", io.paint(bold, "From "+c.From+" to "+c.To))
		for i := range c.Cases {
			printCase(io, &c.Cases[i])
		}
	}
	if e.Compared > 0 {
		text := "policies and security groups say the same."
		if len(e.Connections) > 0 {
			text = fmt.Sprintf("%d connections differ, as shown.", len(e.Connections))
		}
		fmt.Fprintf(io.out, "\nCompared with %d other pods, both ways: %s\n", e.Compared, text)
	}
}

func printCase(io streams, c *semantics.Case) {
	verdict := io.paint(red, "closed")
	switch {
	case c.Differ:
		verdict = io.paint(yellow, "they differ")
	case c.Allowed:
		verdict = io.paint(green, "allowed")
	}
	fmt.Fprintf(io.out, "  %s, %s: %s\n", strings.Join(c.Ports, " "), strings.Join(c.Addresses, ", "), verdict)
	for i := range c.Sides {
		s := &c.Sides[i]
		fmt.Fprintf(io.out, "    %s of %s\n", s.Direction, s.Pod)
		fmt.Fprintf(io.out, "      policies: %s\n", policyText(s))
		fmt.Fprintf(io.out, "      cloud:    %s\n", cloudText(s))
		if s.Advice != "" {
			fmt.Fprintf(io.out, "      %s %s\n", io.paint(yellow, "!"), s.Advice)
		}
	}
}

func policyText(s *semantics.Side) string {
	switch {
	case s.Programs:
		return "allowed, as all that programs of the pod's node send"
	case s.Itself:
		return "allowed, as all that the pod sends itself through its Service"
	case len(s.IsolatedBy) == 0:
		return "allowed, since none isolates the pod"
	case s.Allowed:
		return "allowed by " + strings.Join(s.Rules, ", ")
	}
	return "closed: isolated by " + strings.Join(s.IsolatedBy, ", ") + ", of which no rule allows it"
}

func cloudText(s *semantics.Side) string {
	switch {
	case s.Port == "":
		return "closed: the pod has no port"
	case len(s.Passing) > 0:
		var rules []string
		for _, p := range s.Passing {
			rules = append(rules, fmt.Sprintf("%s (rule %s)", p.Group, p.Rule))
		}
		return "allowed by " + strings.Join(rules, ", ")
	case s.Cloud:
		return "allowed: port security is off at port " + s.Port
	}
	return "closed: no rule of a security group of port " + s.Port + " lets it pass"
}

// errHostNetwork is of a pod to which policies do not apply.
var errHostNetwork = errors.New("it is on its host's network: it has no port, and no NetworkPolicy counts for it")
