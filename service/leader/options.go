// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"errors"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuryr/raven/service/config"
)

const (
	group         = "kubernetes"
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	// NamespaceOutside is where the Lease of a process is that runs in no pod, unless lease_namespace says otherwise.
	NamespaceOutside = "kube-system"
)

// Options are the options of [kubernetes] that say whether and how a leader is elected.
func Options() []config.Option {
	options := []config.Option{
		{
			Name: "controller_ha", Type: config.Boolean, Default: "False",
			NoEffect: "Raven takes a Lease in any case: of several only the one that holds it works, the others stand by",
			Help:     "Run as one of several.",
		},
		{
			Name: "lease_name", Default: "raven", Pattern: `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`, MaxLength: 253,
			Help: "Name of the Lease that a Raven holds while it works. Ravens with different [raven] cluster_id need " +
				"different ones.",
		},
		{
			Name: "lease_namespace", Pattern: `^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`, MaxLength: 63,
			SampleDefault: "the pod's namespace, else " + NamespaceOutside,
			Help: "Namespace of the Lease. It must exist, and the account be allowed to get, " +
				"create and update Leases in it.",
		},
		{
			Name: "lease_duration", Type: config.Duration, Default: "15", Min: new(2.0),
			Help: "How long the others wait for a leader that is not heard of, in whole seconds, before " +
				"one takes its place. A process on the same host that follows one which was killed does not wait.",
		},
		{
			Name: "lease_renew_deadline", Type: config.Duration, Default: "10", Min: new(1.0),
			Help: "How long after its last renewal of the Lease a leader breaks off all work, requests " +
				"in flight too. What is " +
				"left to lease_duration is the margin for clocks that run at different speeds.",
		},
		{
			Name: "lease_retry_period", Type: config.Duration, Default: "2", Min: new(0.1), Advanced: true,
			Help: "The time between two renewals, or between two checks whether the Lease is free.",
		},
		{
			Name: "controller_ha_elector_port", Type: config.Port, Default: "16401", Advanced: true,
			NoEffect: "Raven contends for the Lease itself, without an elector beside it",
			Help:     "The port of kuryr-kubernetes' leader elector.",
		},
	}
	for i := range options {
		options[i].Group, options[i].Declarer = group, "kuryr.raven"
	}
	return options
}

// FromConfig reads the options that Options declares. Its errors name the option at fault.
func FromConfig(v *config.Values) (Config, error) {
	c := Config{
		Name: v.String(group, "lease_name"), Namespace: v.String(group, "lease_namespace"),
		Duration: v.Duration(group, "lease_duration"), RenewDeadline: v.Duration(group, "lease_renew_deadline"),
		RetryPeriod: v.Duration(group, "lease_retry_period"),
	}
	if c.Namespace == "" {
		c.Namespace = OwnNamespace()
	}
	return c, c.Validate()
}

// OwnNamespace is that of the pod that this process runs in.
func OwnNamespace() string {
	text, err := os.ReadFile(namespaceFile)
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name
	}
	return NamespaceOutside
}

// expected says whether an error is part of how candidates meet: another one was faster, or there is no Lease yet.
func expected(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsNotFound(err) && !namespaceMissing(err)
}

func namespaceMissing(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// refused says that an error stays until an operator grants a permission or makes the namespace.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || namespaceMissing(err)
}

// explain says what to do about an error.
func explain(err error, c Config) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%v; let this account get, create and update leases.coordination.k8s.io in namespace %s, as "+
			"`raven driver rbac` prints", err, c.Namespace)
	case namespaceMissing(err):
		return fmt.Sprintf("%v; set [kubernetes] lease_namespace to a namespace that exists", err)
	}
	return err.Error()
}
