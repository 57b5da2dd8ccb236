// SPDX-License-Identifier: Apache-2.0

// Package etc holds the files that an installation puts on a machine, as they are installed. It must never hold
// anything that is made up at build time: what is embedded here is what packages ship.
package etc

import _ "embed"

// Unit is the systemd unit, with /usr/bin/raven as its program.
//
//go:embed raven.service
var Unit string

// NodeUnit is the systemd unit of a node's daemon, with /usr/bin/raven as its program.
//
//go:embed raven-node.service
var NodeUnit string

// NodeConf is the configuration of a node's daemon that is installed.
//
//go:embed raven-node.conf
var NodeConf string

// Sysusers declares the user that the unit names.
//
//go:embed sysusers.d/raven.conf
var Sysusers string
