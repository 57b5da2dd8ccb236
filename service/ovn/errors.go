// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"errors"
	"fmt"
	"strings"
)

// UnavailableError says that the northbound database cannot be asked now. Of what is in it nothing is known but what
// was known before; what was being written may be written or not.
type UnavailableError struct{ Err error }

func (u *UnavailableError) Error() string {
	return fmt.Sprintf("OVN's northbound database is unreachable: %v", u.Err)
}

// Unwrap returns why.
func (u *UnavailableError) Unwrap() error { return u.Err }

// MissingError says that rows are not there that others have to join: Neutron has not made them yet, or another client
// has deleted them.
type MissingError struct {
	// Rows are the names of the rows, sorted: of switches and routers of Neutron's, or the ID of a group of Raven's.
	// There is one at least.
	Rows []string
}

func (m *MissingError) Error() string {
	const named = 5
	verb := "is"
	if len(m.Rows) > 1 {
		verb = "are"
	}
	text := strings.Join(m.Rows[:min(named, len(m.Rows))], ", ")
	if more := len(m.Rows) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s %s not in OVN's northbound database yet", text, verb)
}

// ConflictError says that a VIP is not served since another load balancer of Raven's serves it in the same group: of
// two who want it the first one has it. All else of the load balancer is as it should be.
type ConflictError struct {
	VIP string // protocol, address and port
	// Holder is the ID of the other load balancer, Name its name.
	Holder, Name string
}

func (c *ConflictError) Error() string {
	return fmt.Sprintf("%s is left out: load balancer %s has it already", c.VIP, c.Name)
}

// InvalidError says that something cannot be in OVN as it is wanted. The same wish will never work.
type InvalidError struct{ Reason string }

func (i *InvalidError) Error() string { return i.Reason }

// GoneError says that what is to be changed is not there any more.
type GoneError struct{ ID string }

func (g *GoneError) Error() string { return g.ID + " is not in OVN's northbound database any more" }

// ErrClosed is in the error of a call after Close.
var ErrClosed = errors.New("the connection to OVN's northbound database is closed")
