// SPDX-License-Identifier: Apache-2.0

package writeback

import "github.com/kuryr/raven/service/config"

// Options are the options of [kubernetes] that say what is written back.
func Options() []config.Option {
	return []config.Option{{
		Group: "kubernetes", Name: "use_events", Type: config.Boolean, Default: "True", Declarer: "kuryr.raven",
		Help: "Record Events on the objects that something is wrong with.",
	}}
}

// EventsDisabled returns the configured Events.Disabled.
func EventsDisabled(values *config.Values) bool { return !values.Bool("kubernetes", "use_events") }
