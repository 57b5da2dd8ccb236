// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Failure is an error with what becomes of the object that it concerns: where it stands, when it is tried again, and
// what may wake it before.
type Failure struct {
	Phase state.Phase
	// RequeueAfter is the time after which the object is reconciled again; 0: never by itself.
	RequeueAfter time.Duration
	// Backoff asks for another try after a time that grows with every failure.
	Backoff bool
	// Replan says that what is known was brought up to date, so that another plan may do.
	Replan bool
	// NotTried says that the step was not asked for: a preflight has found why not.
	NotTried bool
	// Wait is what may wake the object before: any of it.
	Wait []state.Key
	// Quiet says that it is not for the people who look at the object: there would be an Event on every one.
	Quiet bool
	// Patient says that it is for people only when it has lasted, for most of these pass.
	Patient bool
	Err     error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Permanent returns a failure that another try cannot repair: only a new object, driver or configuration can.
func Permanent(err error) *Failure { return &Failure{Phase: state.Terminal, Err: err} }

// Permanentf is Permanent with a text.
func Permanentf(format string, args ...any) *Failure { return Permanent(fmt.Errorf(format, args...)) }

// StepError says which step failed.
type StepError struct {
	Step plan.Step
	Err  error
	Note string // for people, what else there is to know
}

// Brief is implemented by errors that have a shorter text where it is said already what was done.
type Brief interface{ Brief() string }

func (e *StepError) Error() string {
	text := Doing(e.Step) + ": "
	var brief Brief
	if errors.As(e.Err, &brief) {
		text += brief.Brief()
	} else {
		text += e.Err.Error()
	}
	if e.Note != "" {
		text += "; " + e.Note
	}
	return text
}
func (e *StepError) Unwrap() error { return e.Err }

// Doing says what a step does, with the resource's name in the cloud where it has one.
func Doing(step plan.Step) string {
	name, _ := step.Attrs["name"].(string)
	if name == "" {
		name = step.Identity.Name
	}
	kind := strings.ReplaceAll(string(step.Kind), "_", " ")
	if step.Part != nil {
		return fmt.Sprintf("%s %s of %s %s", gerund(step.Op), step.Part, kind, step.ID)
	}
	return fmt.Sprintf("%s %s %q", gerund(step.Op), kind, name)
}

func gerund(op plan.Op) string {
	return map[plan.Op]string{
		plan.Create: "creating", plan.Update: "updating", plan.Delete: "deleting",
		plan.Attach: "attaching", plan.Detach: "detaching", plan.Tag: "tagging",
		plan.Failover: "failing over",
	}[op]
}
