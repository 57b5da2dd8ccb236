// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"time"

	"github.com/kuryr/raven/service/config"
)

// Options declares what is said of load balancers.
func Options() []config.Option {
	least := float64(1)
	return []config.Option{{
		Group: "neutron_defaults", Name: "lbaas_activation_timeout", Type: config.Duration, Default: "300", Min: &least,
		Declarer: "kuryr.raven",
		Help: "How long a load balancer may take to become ready before an Event on its Service says so. " +
			"It is waited for on.",
	}}
}

// ActivationTimeout is how long a load balancer may take to become ready before people are told.
func ActivationTimeout(v *config.Values) time.Duration {
	return v.Duration("neutron_defaults", "lbaas_activation_timeout")
}
