// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Action is what a fault rule does to a request.
type Action string

// The actions. "Applied" means: the state changes as if nothing were wrong.
const (
	ActionStatus      Action = "status"       // answer Status with Response and Headers; not applied
	ActionTimeout     Action = "timeout"      // no answer until the client goes; not applied
	ActionDelay       Action = "delay"        // wait Delay, then go on as usual
	ActionCut         Action = "cut"          // cut the connection; not applied
	ActionApplyCut    Action = "apply-cut"    // applied, then the connection is cut
	ActionApplyStatus Action = "apply-status" // applied, then answered with Status, as a proxy does that gives up
	ActionApplyLate   Action = "apply-late"   // cut at once, applied after Delay
	ActionTruncate    Action = "truncate"     // applied, half of the answer's body sent, then cut

	// Of changes of load balancers: the request goes well, and the provider's work does not.
	ActionProviderError Action = "provider-error" // it ends in ERROR
	ActionProviderStall Action = "provider-stall" // it never ends: PENDING_* for good
)

// Duration is a time.Duration that is text ("1.5s") in JSON.
type Duration time.Duration

// Duration returns it as Go has it.
func (d Duration) Duration() time.Duration { return time.Duration(d) }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	x, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("reading a duration: %w", err)
	}
	*d = Duration(x)
	return nil
}

// Rule is a fault rule. What is unset matches every request. Of several rules that match, the first added acts.
type Rule struct {
	// Method, as in HTTP. "write" stands for POST, PUT and DELETE to Neutron and Octavia.
	Method string `json:"method,omitempty"`
	// Path is a regular expression over the path below the service's root, such as ^/v2.0/ports$.
	Path string `json:"path,omitempty"`
	// Kind is Request.Kind.
	Kind string `json:"kind,omitempty"`
	// Query is a part of the query string, as sent.
	Query string `json:"query,omitempty"`
	// Body is a part of the request's body.
	Body string `json:"body,omitempty"`
	// Nth is the first match that the rule acts on, from 1. With Times unset it acts on that one only.
	Nth int `json:"nth,omitempty"`
	// Times is how often the rule acts. 0: without end, but see Nth.
	Times int `json:"times,omitempty"`
	// Probability that it acts on a match, drawn from the cloud's seed. 0: always.
	Probability float64 `json:"probability,omitempty"`

	Action   Action            `json:"action"`
	Status   int               `json:"status,omitempty"`
	Response string            `json:"response,omitempty"` // the body; unset: a plausible one
	Headers  map[string]string `json:"headers,omitempty"`
	Delay    Duration          `json:"delay,omitempty"`
}

// fault is a rule at work.
type fault struct {
	id    int
	rule  Rule
	path  *regexp.Regexp
	seen  int
	acted int
}

func (f *fault) name() string {
	if f == nil {
		return ""
	}
	return string(f.rule.Action)
}

// AddFault adds a rule and returns its number. An unknown action, a bad expression or a missing status is an error.
func (c *Cloud) AddFault(r Rule) (int, error) {
	re, err := regexp.Compile(r.Path)
	if err != nil {
		return 0, fmt.Errorf("reading a fault rule's path: %w", err)
	}
	switch r.Action {
	case ActionStatus, ActionApplyStatus:
		if r.Status < 200 || r.Status > 599 {
			return 0, fmt.Errorf("reading a fault rule: status %d is none", r.Status)
		}
	case ActionTimeout, ActionDelay, ActionCut, ActionApplyCut, ActionApplyLate, ActionTruncate, ActionProviderError,
		ActionProviderStall:
	default:
		return 0, fmt.Errorf("reading a fault rule: unknown action %q", r.Action)
	}
	if r.Probability < 0 || r.Probability > 1 {
		return 0, errors.New("reading a fault rule: a probability is between 0 and 1")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faultSeq++
	c.faults = append(c.faults, &fault{id: c.faultSeq, rule: r, path: re})
	return c.faultSeq, nil
}

// RemoveFault removes one rule. What it did already goes on: an apply-late is applied, a timeout hangs on.
func (c *Cloud) RemoveFault(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.faults[:0:0]
	for _, f := range c.faults {
		if f.id != id {
			kept = append(kept, f)
		}
	}
	c.faults = kept
}

// ClearFaults removes every rule.
func (c *Cloud) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

// FaultState is a rule and what became of it.
type FaultState struct {
	ID      int  `json:"id"`
	Rule    Rule `json:"rule"`
	Matched int  `json:"matched"`
	Acted   int  `json:"acted"`
}

// Faults returns the rules that are there.
func (c *Cloud) Faults() []FaultState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]FaultState, 0, len(c.faults))
	for _, f := range c.faults {
		out = append(out, FaultState{ID: f.id, Rule: f.rule, Matched: f.seen, Acted: f.acted})
	}
	return out
}

// matchFault returns the rule that acts on a request, nil for none.
func (c *Cloud) matchFault(r *Request, path string) *fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if !f.matches(r, path) {
			continue
		}
		f.seen++
		if f.due() && (f.rule.Probability == 0 || c.faultRnd.Float64() < f.rule.Probability) {
			f.acted++
			return f
		}
	}
	return nil
}

func (f *fault) matches(r *Request, path string) bool {
	method := f.rule.Method == "" || strings.EqualFold(f.rule.Method, r.Method) ||
		(f.rule.Method == "write" && r.WriteN > 0)
	return method && (f.rule.Kind == "" || f.rule.Kind == r.Kind) && f.path.MatchString(path) &&
		strings.Contains(r.Query, f.rule.Query) && strings.Contains(r.Body, f.rule.Body)
}

func (f *fault) due() bool {
	times := f.rule.Times
	if times == 0 && f.rule.Nth > 0 {
		times = 1
	}
	return f.seen >= f.rule.Nth && (times == 0 || f.acted < times)
}

// response is the answer that a rule gives.
func (f *fault) response(where target) response {
	r := response{status: f.rule.Status, body: []byte(f.rule.Response), header: http.Header{}}
	if f.rule.Response == "" {
		text := http.StatusText(f.rule.Status)
		if f.rule.Status == http.StatusUnauthorized {
			r.body = keystoneError(f.rule.Status, "The request you have made requires authentication.").body
		} else if f.rule.Status != http.StatusNoContent {
			r.body = where.refusal(neutron(f.rule.Status, "HTTP"+strings.ReplaceAll(text, " ", ""), "%s", text)).body
		}
	}
	for k, v := range f.rule.Headers {
		r.header.Set(k, v)
	}
	return r
}
