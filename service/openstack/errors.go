// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// Class says what an error means for whoever wanted something. It is decided here and nowhere else.
type Class int

// The classes.
const (
	// ClassNone is the class of no error.
	ClassNone Class = iota
	// ClassRetry: it may work later; nothing was made.
	ClassRetry
	// ClassAmbiguous: a create that may have taken effect, or may yet. List by identity; do not create again before
	// AmbiguousWait has passed.
	ClassAmbiguous
	// ClassTerminal: the same request will never work.
	ClassTerminal
	// ClassNotFound: the resource, or one that the request refers to, is not there.
	ClassNotFound
	// ClassStale: another client changed the resource in between. Read it again.
	ClassStale
	// ClassInUse: something still uses the resource.
	ClassInUse
	// ClassQuota: the project's quota, or a pool of addresses, is exhausted.
	ClassQuota
	// ClassForbidden: the credentials do not allow it.
	ClassForbidden
	// ClassUnauthorized: the credentials are not accepted.
	ClassUnauthorized
	// ClassThrottled: the server asks to be left alone; see RetryAfter.
	ClassThrottled
	// ClassSubnetFull: no address is left in the subnets.
	ClassSubnetFull
	// ClassExists: the cloud holds something that excludes this one: the same MAC address, IP address, range or rule. It
	// may be the very one that was wanted: search by identity.
	ClassExists
	// ClassBusy: a load balancer, or a part of it, takes no changes until its provider is done.
	ClassBusy
	// ClassUnsupported: a load balancer's provider cannot do this. The same request will never work.
	ClassUnsupported
	// ClassUnreachable: no router joins the two networks that the request is about, or not yet.
	ClassUnreachable
)

// String returns the class in one or two words.
func (c Class) String() string {
	names := [...]string{
		"none", "retry", "ambiguous", "terminal", "not found", "stale", "in use", "quota", "forbidden", "unauthorized",
		"throttled", "subnet full", "exists", "busy", "unsupported", "unreachable",
	}
	if c < 0 || int(c) >= len(names) {
		return "class " + strconv.Itoa(int(c))
	}
	return names[c]
}

// Error is a request that did not work. Its text is one line and holds no secret.
type Error struct {
	Op       string        // "creating", "listing", …
	Kind     drivers.Kind  // of the resource; may be empty
	What     string        // its id or name; may be empty
	Identity plan.Identity // of a create
	Status   int           // HTTP status; 0 where there was no answer
	Type     string        // Neutron's error type, such as "OverQuota"
	Message  string        // what the server or the network said
	Retry    time.Duration // what Retry-After asked for, or 0

	Class Class // see Classify
	Cause error
}

// Error returns what was tried and what came of it, on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Kind != "" {
		b.WriteString(" " + strings.ReplaceAll(string(e.Kind), "_", " "))
	}
	if e.What != "" {
		fmt.Fprintf(&b, " %q", e.What)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, "%d ", e.Status)
	}
	if e.Type != "" {
		b.WriteString(e.Type + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Unwrap returns the cause, for context errors and the like.
func (e *Error) Unwrap() error { return e.Cause }

// For is the error as one member of a request has it.
func (e *Error) For(identity plan.Identity) *Error {
	member := *e
	member.Identity, member.What = identity, identity.Name
	return &member
}

// StatusOf is the HTTP status that an error from this package has, or 0.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// AnswerOf is what came of a request, without what was asked: the status and the server's words, or why no answer came.
func AnswerOf(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return brief(err)
	}
	answer := *e
	answer.Op, answer.Kind, answer.What = "", "", ""
	return answer.Error()
}

// Classify says what an error from this package means. An error from elsewhere is ClassRetry.
func Classify(err error) Class {
	if err == nil {
		return ClassNone
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ClassRetry
}

// RetryAfter is how long the server asked to be left alone, or 0.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.Retry
	}
	return 0
}

// NewError makes an Error of what a request came to. sent says whether anything of it left this machine.
func NewError(r Call, err error, sent bool) *Error {
	var made *Error
	if errors.As(err, &made) {
		return made
	}
	e := &Error{Op: r.Op, Kind: r.Collection.Kind, What: r.What, Cause: err}
	var refused gophercloud.ErrUnexpectedResponseCode
	var reauth *gophercloud.ErrUnableToReauthenticate
	switch {
	case errors.As(err, &reauth):
		e.Message = "getting a new token: " + brief(reauth.ErrReauth)
		e.Class, e.Cause = ClassRetry, reauth.ErrReauth
		if errors.As(reauth.ErrReauth, &refused) && refused.Actual == http.StatusUnauthorized {
			e.Status, e.Class = refused.Actual, ClassUnauthorized
			e.Message += "; check the credentials in [neutron]"
		}
	case errors.As(err, &refused):
		e.Status = refused.Actual
		e.Type, e.Message = explain(refused.Body)
		if e.Message == "" {
			e.Message = http.StatusText(refused.Actual)
		}
		e.Retry = retryAfter(refused)
		e.Class = classifyStatus(e, r.Create)
	case sent && r.Create:
		e.Message, e.Class = "no complete answer: "+brief(err), ClassAmbiguous
	default:
		e.Message, e.Class = brief(err), ClassRetry
	}
	return e
}

// classifyStatus is the table of statuses; classifyType that of Neutron's error types, which goes first.
func classifyStatus(e *Error, create bool) Class {
	if class := classifyType(e); class != ClassNone {
		return class
	}
	switch e.Status {
	case http.StatusUnauthorized:
		return ClassUnauthorized
	case http.StatusForbidden:
		return ClassForbidden
	case http.StatusNotFound, http.StatusGone:
		return ClassNotFound
	case http.StatusConflict:
		return ClassRetry
	case http.StatusPreconditionFailed:
		return ClassStale
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, 498:
		return ClassThrottled
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		if create {
			return ClassAmbiguous
		}
		return ClassRetry
	case http.StatusNotImplemented:
		return ClassTerminal
	}
	if e.Status >= 400 && e.Status < 500 {
		return ClassTerminal
	}
	return ClassRetry
}

// classifyType classifies by the error type in a Neutron body, and by its message where one type stands for several
// things.
func classifyType(e *Error) Class {
	switch e.Type {
	case "OverQuota", "SubnetPoolQuotaExceeded", "QuotaResourceUnknown", "ExternalIpAddressExhausted",
		"SubnetAllocationError":
		return ClassQuota
	case "IpAddressGenerationFailure", "IpAddressGenerationFailureAllSubnets":
		return ClassSubnetFull
	case "MacAddressInUse", "IpAddressInUse", "IpAddressAlreadyAllocated", "SecurityGroupRuleExists",
		"DuplicateSecurityGroupRuleInPost", "FloatingIPAddressInUse":
		return ClassExists
	case "RevisionNumberConstraintFailed", "StaleDataError":
		return ClassStale
	case "FloatingIPPortAlreadyAssociated", "RouterInterfaceInUseByFloatingIP", "RouterInterfaceInUseByRoute",
		"L3PortInUse", "ServicePortInUse", "TrunkPortInUse", "RouterExternalGatewayInUseByFloatingIp":
		return ClassInUse
	case "PolicyNotAuthorized":
		return ClassForbidden
	case "ExternalGatewayForFloatingIPNotFound":
		return ClassUnreachable
	}
	if class := classifyBalancer(e); class != ClassNone {
		return class
	}
	switch {
	case e.Status == http.StatusConflict && strings.Contains(e.Type, "InUse"):
		return ClassInUse
	case e.Status == http.StatusBadRequest && strings.Contains(e.Message, "overlaps with another subnet"):
		return ClassExists
	case e.Status == http.StatusForbidden && strings.Contains(strings.ToLower(e.Message), "quota"):
		return ClassQuota // Octavia's way of saying so.
	}
	return ClassNone
}

// classifyBalancer classifies what Octavia says: its errors have no types, only texts.
func classifyBalancer(e *Error) Class {
	switch e.Kind {
	case drivers.KindLoadBalancer, KindListener, KindPool, KindMonitor, KindMember:
	default:
		return ClassNone
	}
	busy := strings.Contains(e.Message, "immutable") || strings.Contains(e.Message, "Invalid state")
	switch {
	case e.Status == http.StatusNotImplemented:
		return ClassUnsupported
	case e.Status == http.StatusConflict && busy:
		return ClassBusy
	case e.Status == http.StatusConflict && e.Kind != drivers.KindLoadBalancer:
		return ClassStale // there is a part that was not known
	case e.Status == http.StatusBadRequest && strings.Contains(e.Message, " not found.") && missingIn(e.Message):
		return ClassNotFound // something of Neutron's that the request refers to
	case strings.Contains(e.Message, "is not a valid IP for"):
		return ClassTerminal // of Neutron's, which is said by 500
	case e.Status == http.StatusConflict,
		strings.Contains(e.Message, "already allocated"), strings.Contains(e.Message, "already in use"):
		return ClassExists // the VIP's address: some releases say so by 500
	}
	return ClassNone
}

// missingIn says whether a text of Octavia's is about something of Neutron's.
func missingIn(message string) bool {
	for _, what := range []string{"Subnet ", "Network ", "Port "} {
		if strings.HasPrefix(message, what) {
			return true
		}
	}
	return false
}

// Individual says whether an error of a request about many resources is about only some of them, so that dividing the
// request saves the others.
func (e *Error) Individual() bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict:
		return e.Class != ClassQuota
	}
	return false
}

// Overload says whether an error means that the server has too much to do.
func (e *Error) Overload() bool {
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return errors.Is(e.Cause, context.DeadlineExceeded)
}

// explain takes type and message out of an error's body: Neutron's form, Keystone's and others', or plain text.
func explain(body []byte) (kind, message string) {
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		return "", OneLine(string(body))
	}
	for _, key := range []string{"NeutronError", "error"} {
		switch inner := doc[key].(type) {
		case map[string]any:
			kind, _ = inner["type"].(string)
			message, _ = inner["message"].(string)
			if detail, ok := inner["detail"].(string); ok && detail != "" {
				message += " " + detail
			}
			return kind, OneLine(message)
		case string:
			return "", OneLine(inner)
		}
	}
	for _, key := range []string{"faultstring", "message", "title"} {
		if text, ok := doc[key].(string); ok {
			return "", OneLine(text)
		}
	}
	return "", OneLine(string(body))
}

// retryAfter reads a refusal's Retry-After, in seconds or as a date. 429 without one asks for defaultRetryAfter.
func retryAfter(refused gophercloud.ErrUnexpectedResponseCode) time.Duration {
	text := refused.ResponseHeader.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 {
		return min(time.Duration(seconds*float64(time.Second)), longestRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		sentAt, err := http.ParseTime(refused.ResponseHeader.Get("Date"))
		if err == nil && at.After(sentAt) {
			return min(at.Sub(sentAt), longestRetryAfter)
		}
		return defaultRetryAfter
	}
	if refused.Actual == http.StatusTooManyRequests {
		return defaultRetryAfter
	}
	return 0
}

// brief returns an error's text on one line. Of a failed request it leaves out the address's query and user.
func brief(err error) string {
	var failed *url.Error
	if errors.As(err, &failed) {
		where := failed.URL
		if parsed, bad := url.Parse(failed.URL); bad == nil {
			where = parsed.Scheme + "://" + parsed.Host + parsed.Path
		}
		return OneLine(where + ": " + failed.Err.Error())
	}
	var refused gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &refused) {
		_, message := explain(refused.Body)
		return OneLine(strconv.Itoa(refused.Actual) + " " + message)
	}
	return OneLine(err.Error())
}

// OneLine folds white space and bounds the length.
func OneLine(text string) string {
	const longest = 500
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
