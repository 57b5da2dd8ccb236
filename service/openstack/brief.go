// SPDX-License-Identifier: Apache-2.0

package openstack

// Brief says why a request was refused, without what was asked for.
func (e *Error) Brief() string {
	reason := *e
	reason.Op, reason.Kind, reason.What = "", "", ""
	return reason.Error()
}

// Outcome names the class of the error in metrics.
func (e *Error) Outcome() string { return e.Class.String() }
