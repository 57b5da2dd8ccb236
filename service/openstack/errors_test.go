// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/internal/stacktest"
)

func TestClassify(t *testing.T) {
	const (
		id   = "0b7f1d8a-8a3b-4b11-9ed1-0d2f5d7a8b11"
		full = "No more IP addresses available on network " + id + "."
	)
	tests := []struct {
		name       string
		status     int
		body       string
		create     bool
		want       openstack.Class
		individual bool // dividing a bulk would help
	}{
		{
			"quota", 409, stacktest.NeutronBody("OverQuota", "Quota exceeded for resources: ['port']."), true,
			openstack.ClassQuota, false,
		},
		{
			"octavia's quota", 403,
			`{"faultcode": "Client", "faultstring": "Quota has been met for resources: Load Balancer", "debuginfo": null}`, true,
			openstack.ClassQuota, false,
		},
		{
			"pool's quota", 409,
			stacktest.NeutronBody("SubnetPoolQuotaExceeded", "Per-tenant subnet pool prefix quota exceeded."), true,
			openstack.ClassQuota, false,
		},
		{
			"pool exhausted", 400,
			stacktest.NeutronBody(
				"SubnetAllocationError", "Failed to allocate subnet: Insufficient prefix space to allocate subnet size /8.",
			),
			true, openstack.ClassQuota, false,
		},
		{
			"external addresses exhausted", 400,
			stacktest.NeutronBody("ExternalIpAddressExhausted", "Unable to find any IP address on external network "+id+"."),
			true, openstack.ClassQuota, false,
		},
		{
			"subnet full", 409, stacktest.NeutronBody("IpAddressGenerationFailure", full), true, openstack.ClassSubnetFull, true,
		},
		{
			"mac in use", 409,
			stacktest.NeutronBody(
				"MacAddressInUse", "Unable to complete operation for network "+id+". The mac address fa:16:3e:00:00:01 is in use.",
			),
			true, openstack.ClassExists, true,
		},
		{
			"address in use", 409,
			stacktest.NeutronBody("IpAddressAlreadyAllocated", "IP address 10.1.200.1 already allocated in subnet "+id), true,
			openstack.ClassExists, true,
		},
		{
			"rule exists", 409,
			stacktest.NeutronBody("SecurityGroupRuleExists", "Security group rule already exists. Rule id is "+id+"."), true,
			openstack.ClassExists, true,
		},
		{
			"overlap", 400,
			stacktest.NeutronBody(
				"InvalidInput",
				"Invalid input for operation: Requested subnet with cidr: 10.1.5.0/24 for network: "+id+
					" overlaps with another subnet.",
			),
			true, openstack.ClassExists, true,
		},
		{
			"invalid", 400, stacktest.NeutronBody("HTTPBadRequest", "Unrecognized attribute(s) 'bogus'"), true,
			openstack.ClassTerminal, true,
		},
		{
			"outside the subnet", 400,
			stacktest.NeutronBody("InvalidIpForSubnet", "IP address 10.9.200.1 is not a valid IP for the specified subnet."),
			true, openstack.ClassTerminal, true,
		},
		{
			"no such network", 404, stacktest.NeutronBody("NetworkNotFound", "Network "+id+" could not be found."), true,
			openstack.ClassNotFound, true,
		},
		{
			"no router joins them", 404,
			stacktest.NeutronBody("ExternalGatewayForFloatingIPNotFound", "External network 1 is not reachable from subnet 2."),
			true, openstack.ClassUnreachable, true,
		},
		{
			"policy", 403,
			stacktest.NeutronBody(
				"PolicyNotAuthorized", "((rule:create_port and rule:create_port:binding:host_id)) is disallowed by policy",
			),
			true, openstack.ClassForbidden, false,
		},
		{
			"subnet in use", 409,
			stacktest.NeutronBody(
				"SubnetInUse",
				"Unable to complete operation on subnet "+id+": One or more ports have an IP allocation from this subnet.",
			),
			false, openstack.ClassInUse, true,
		},
		{
			"network in use", 409,
			stacktest.NeutronBody(
				"NetworkInUse",
				"Unable to complete operation on network "+id+". There are one or more ports still in use on the network.",
			),
			false, openstack.ClassInUse, true,
		},
		{
			"router in use", 409, stacktest.NeutronBody("RouterInUse", "Router "+id+" still has ports"), false,
			openstack.ClassInUse, true,
		},
		{
			"group in use", 409, stacktest.NeutronBody("SecurityGroupInUse", "Security Group "+id+" in use."), false,
			openstack.ClassInUse, true,
		},
		{
			"router's port", 409,
			stacktest.NeutronBody(
				"ServicePortInUse",
				"Port "+id+" cannot be deleted directly via the port API: has device owner network:router_interface.",
			),
			false, openstack.ClassInUse, true,
		},
		{
			"interface of a floating ip", 409,
			stacktest.NeutronBody(
				"RouterInterfaceInUseByFloatingIP",
				"Router interface for subnet "+id+" on router "+id+" cannot be deleted, "+
					"as it is required by one or more floating IPs.",
			),
			false, openstack.ClassInUse, true,
		},
		{
			"stale", 412, stacktest.NeutronBody("RevisionNumberConstraintFailed", "Constrained to 0, but current revision is 3"),
			false, openstack.ClassStale, false,
		},
		{"unknown conflict", 409, stacktest.NeutronBody("SomethingNew", "try again"), false, openstack.ClassRetry, true},
		{
			"keystone", 401,
			`{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}`,
			true, openstack.ClassUnauthorized, false,
		},
		{"too many", 429, "slow down", true, openstack.ClassThrottled, false},
		{
			"too large", 413, "<html><body><h1>413 Request Entity Too Large</h1></body></html>", true, openstack.ClassThrottled,
			false,
		},
		{
			"server error on a create", 500,
			stacktest.NeutronBody("HTTPInternalServerError", "Request Failed: internal server error"), true,
			openstack.ClassAmbiguous, false,
		},
		{"gateway time-out on a create", 504, "<html>504</html>", true, openstack.ClassAmbiguous, false},
		{"unavailable on a create", 503, "", true, openstack.ClassAmbiguous, false},
		{"bad gateway on a create", 502, "", true, openstack.ClassAmbiguous, false},
		{"server error on a delete", 500, "", false, openstack.ClassRetry, false},
		{"gateway time-out on a list", 504, "", false, openstack.ClassRetry, false},
		{"not implemented", 501, "", true, openstack.ClassTerminal, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cause := gophercloud.ErrUnexpectedResponseCode{
				Actual: test.status, Body: []byte(test.body), ResponseHeader: http.Header{},
			}
			err := openstack.NewError(
				openstack.Call{
					Op: openstack.OpCreate, Collection: openstack.Collection{Kind: drivers.KindPort}, Create: test.create,
				},
				cause, true,
			)
			if got := openstack.Classify(fmt.Errorf("wrapped: %w", err)); got != test.want {
				t.Errorf("%s is %v, want %v", err, got, test.want)
			}
			if got := err.Individual(); got != test.individual {
				t.Errorf("%s individual: %t, want %t", err, got, test.individual)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("more than one line: %q", err.Error())
			}
		})
	}
}

func TestClassifyOctavia(t *testing.T) {
	for _, c := range []struct {
		kind    drivers.Kind
		status  int
		message string
		create  bool
		want    openstack.Class
	}{
		{drivers.KindLoadBalancer, 409, "Load Balancer x is immutable and cannot be updated.", false, openstack.ClassBusy},
		{openstack.KindPool, 409, "Pool x is immutable and cannot be updated.", false, openstack.ClassBusy},
		{
			drivers.KindLoadBalancer, 409, "Invalid state PENDING_UPDATE of loadbalancer resource x", false, openstack.ClassBusy,
		},
		{
			openstack.KindListener, 409, "Another Listener on this Load Balancer is already using protocol_port 80", true,
			openstack.ClassStale,
		},
		{
			drivers.KindLoadBalancer, 500, "Provider 'ovn' reports error: IP address 10.0.0.9 already allocated in subnet x",
			true, openstack.ClassExists,
		},
		{
			drivers.KindLoadBalancer, 500, "IP address 10.9.0.1 is not a valid IP for the specified subnet.", true,
			openstack.ClassTerminal,
		},
		{drivers.KindLoadBalancer, 403, "Quota has been met for resources: Load Balancer", true, openstack.ClassQuota},
		{
			drivers.KindLoadBalancer, 403, "Policy does not allow this request to be performed.", false,
			openstack.ClassForbidden,
		},
		{
			openstack.KindListener, 501,
			"Provider 'ovn' does not support a requested option: OVN provider does not support HTTP protocol", true,
			openstack.ClassUnsupported,
		},
		{drivers.KindLoadBalancer, 500, "", true, openstack.ClassAmbiguous},
		{drivers.KindLoadBalancer, 400, "Provider 'x' is not enabled.", true, openstack.ClassTerminal},
		{drivers.KindPort, 501, "", true, openstack.ClassTerminal},
	} {
		t.Run(fmt.Sprint(c.kind, c.status, c.message), func(t *testing.T) {
			body, _ := json.Marshal(map[string]string{"faultstring": c.message})
			cause := gophercloud.ErrUnexpectedResponseCode{Actual: c.status, Body: body, ResponseHeader: http.Header{}}
			call := openstack.Call{Collection: openstack.Collection{Kind: c.kind}, Create: c.create}
			if got := openstack.Classify(openstack.NewError(call, cause, true)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestClassifyTransport(t *testing.T) {
	reset := errors.New("connection reset by peer")
	tests := []struct {
		name         string
		create, sent bool
		err          error
		want         openstack.Class
	}{
		{"a create that was cut", true, true, reset, openstack.ClassAmbiguous},
		{"a create that was never sent", true, false, reset, openstack.ClassRetry},
		{"a create that took too long", true, true, context.DeadlineExceeded, openstack.ClassAmbiguous},
		{"a delete that was cut", false, true, reset, openstack.ClassRetry},
		{
			"no new token", true, true, &gophercloud.ErrUnableToReauthenticate{ErrOriginal: reset, ErrReauth: reset},
			openstack.ClassRetry,
		},
		{
			"password changed", true, true,
			&gophercloud.ErrUnableToReauthenticate{ErrReauth: gophercloud.ErrUnexpectedResponseCode{Actual: 401}},
			openstack.ClassUnauthorized,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := openstack.Classify(
				openstack.NewError(openstack.Call{Create: test.create}, test.err, test.sent),
			); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if got := openstack.Classify(nil); got != openstack.ClassNone {
		t.Errorf("no error is %v", got)
	}
	if got := openstack.Classify(reset); got != openstack.ClassRetry {
		t.Errorf("another's error is %v", got)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		name   string
		status int
		after  string
		want   time.Duration
	}{
		{"seconds", 503, "7", 7 * time.Second},
		{"a date", 429, now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second},
		{"absurdly long", 429, "86400", 5 * time.Minute},
		{"429 without one", 429, "", time.Second},
		{"503 without one", 503, "", 0},
		{"nonsense", 503, "soon", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			header := http.Header{"Date": {now.Format(http.TimeFormat)}}
			if test.after != "" {
				header.Set("Retry-After", test.after)
			}
			cause := gophercloud.ErrUnexpectedResponseCode{Actual: test.status, ResponseHeader: header}
			if got := openstack.RetryAfter(
				fmt.Errorf("wrapped: %w", openstack.NewError(openstack.Call{}, cause, true)),
			); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
