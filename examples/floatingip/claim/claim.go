// SPDX-License-Identifier: Apache-2.0

// Package claim gives pods floating IPs that their users ask for, by objects of the custom resource FloatingIPClaim.
// It must never do I/O: it is a pure function.
package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

const (
	// annotation is where the address is written, on the claim.
	annotation = "example.org/floating-ip"
	// portAnnotation is where the driver pod writes a pod's port.
	portAnnotation = "kuryr.org/neutron-port"
	group          = "floatingip"
)

// floatingIPClaim is what the driver reads of a claim; manifests/crd.yaml defines it.
type floatingIPClaim struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		// PodName is the pod, of the claim's namespace.
		PodName string `json:"podName"`
		// Address is the address that is wanted; empty is any.
		Address string `json:"address"`
		// Network is the external network, by UUID or name; empty is that of the option.
		Network string `json:"network"`
	} `json:"spec"`
}

// config is what the options say.
type config struct {
	network string
	retain  bool
}

type driver struct{ config atomic.Pointer[config] }

// New returns the driver.
func New() drivers.Driver { return &driver{} }

// Info implements drivers.Driver.
func (d *driver) Info() drivers.Info {
	return drivers.Info{
		Name: "floatingip", Version: "0.1", Description: "Floating IPs for pods, asked for by FloatingIPClaims.",
		Options: []drivers.Option{
			{
				Group: group, Name: "network", Type: drivers.StringOption, Default: "public", HasDefault: true,
				Help: "UUID or name of the external network that floating IPs come from, where a claim names none.",
			},
			{
				Group: group, Name: "reclaim_policy", Type: drivers.StringOption, Default: "delete", HasDefault: true,
				Choices: []string{"delete", "retain"},
				Help:    "What becomes of a floating IP when its claim is deleted.",
			},
		},
		Kinds:       []drivers.Kind{drivers.KindLookup, drivers.KindFloatingIP},
		Annotations: []string{annotation},
	}
}

// Configure implements drivers.Driver.
func (d *driver) Configure(_ context.Context, values drivers.Values) error {
	c := config{network: values.String(group, "network"), retain: values.String(group, "reclaim_policy") == "retain"}
	if c.network == "" {
		return &drivers.OptionError{Group: group, Name: "network", Message: "must not be empty"}
	}
	d.config.Store(&c)
	return nil
}

// Watches implements drivers.Driver.
func (d *driver) Watches() []drivers.Watch {
	return []drivers.Watch{
		{
			Name: "claims", GVR: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "floatingipclaims"},
			Kind: "FloatingIPClaim", Fields: []string{"spec"}, Source: true,
		},
		{
			Name: "pods", GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod",
			// nothing but metadata: the watch is of metadata only
			Fields: []string{"metadata.annotations['" + portAnnotation + "']"},
		},
	}
}

// Translate implements drivers.Driver.
func (d *driver) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	var claim floatingIPClaim
	if err := object.Into(&claim); err != nil {
		return drivers.Set{}, err
	}
	c := d.config.Load()
	network := c.network
	if claim.Spec.Network != "" {
		network = claim.Spec.Network
	}
	spec := drivers.FloatingIP{FloatingNetworkID: drivers.From("network")}
	if claim.Spec.Address != "" {
		if _, err := netip.ParseAddr(claim.Spec.Address); err != nil {
			return drivers.Set{}, fmt.Errorf("spec.address: %w", err)
		}
		spec.FloatingIPAddress = new(claim.Spec.Address)
	}
	set := drivers.Set{Outputs: []drivers.Output{{
		Kind: drivers.Annotation, Key: annotation, Text: drivers.From("floatingip", "floating_ip_address"),
	}}}
	if claim.Spec.PodName != "" {
		pods, answered := needs.Get(drivers.Need{Watch: "pods", Namespace: claim.Namespace, Name: claim.Spec.PodName})
		if !answered {
			return drivers.Set{}, nil // asked again with the answer, and whenever the pod changes
		}
		port, err := portOf(pods)
		if err != nil {
			return drivers.Set{}, err
		}
		if port == "" {
			// The floating IP is kept meanwhile, so that its address is.
			set.Diagnostics = append(set.Diagnostics, drivers.Diagnostic{
				Severity: drivers.Note, Reason: "NoPort", Resource: "floatingip",
				Message: fmt.Sprintf("pod %s does not exist or has no port yet; the floating IP leads nowhere until it has",
					claim.Spec.PodName),
			})
		}
		spec.PortID = drivers.Text(port)
	}
	policy := drivers.Delete
	if c.retain {
		policy = drivers.Retain
	}
	set.Resources = []drivers.Resource{
		{Name: "network", Spec: drivers.Lookup{Of: drivers.KindNetwork, ID: network}},
		{Name: "floatingip", Spec: spec, OnDelete: policy},
	}
	return set, nil
}

// portOf returns the id of a pod's port, "" where there is none yet.
func portOf(pods []drivers.Object) (string, error) {
	if len(pods) == 0 {
		return "", nil
	}
	pod, err := pods[0].Meta()
	if err != nil || pod.Annotations[portAnnotation] == "" {
		return "", err
	}
	var port struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(pod.Annotations[portAnnotation]), &port); err != nil {
		return "", fmt.Errorf("pod %s: annotation %s: %w", pod.Name, portAnnotation, err)
	}
	return port.ID, nil
}
