package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr/raven/drivers"
)

// neutronBody is an error as Neutron words it.
func neutronBody(kind, message string) string {
	return fmt.Sprintf(`{"NeutronError": {"type": %q, "message": %q, "detail": ""}}`, kind, message)
}

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
		want       Class
		individual bool // dividing a bulk would help
	}{
		{"quota", 409, neutronBody("OverQuota", "Quota exceeded for resources: ['port']."), true, ClassQuota, false},
		{"octavia's quota", 403, `{"faultcode": "Client", "faultstring": "Quota has been met for resources: Load Balancer", "debuginfo": null}`, true, ClassQuota, false},
		{"pool's quota", 409, neutronBody("SubnetPoolQuotaExceeded", "Per-tenant subnet pool prefix quota exceeded."), true, ClassQuota, false},
		{"pool exhausted", 400, neutronBody("SubnetAllocationError", "Failed to allocate subnet: Insufficient prefix space to allocate subnet size /8."), true, ClassQuota, false},
		{"external addresses exhausted", 400, neutronBody("ExternalIpAddressExhausted", "Unable to find any IP address on external network "+id+"."), true, ClassQuota, false},
		{"subnet full", 409, neutronBody("IpAddressGenerationFailure", full), true, ClassSubnetFull, true},
		{"mac in use", 409, neutronBody("MacAddressInUse", "Unable to complete operation for network "+id+". The mac address fa:16:3e:00:00:01 is in use."), true, ClassExists, true},
		{"address in use", 409, neutronBody("IpAddressAlreadyAllocated", "IP address 10.1.200.1 already allocated in subnet "+id), true, ClassExists, true},
		{"rule exists", 409, neutronBody("SecurityGroupRuleExists", "Security group rule already exists. Rule id is "+id+"."), true, ClassExists, true},
		{"overlap", 400, neutronBody("InvalidInput", "Invalid input for operation: Requested subnet with cidr: 10.1.5.0/24 for network: "+id+" overlaps with another subnet."), true, ClassExists, true},
		{"invalid", 400, neutronBody("HTTPBadRequest", "Unrecognized attribute(s) 'bogus'"), true, ClassTerminal, true},
		{"outside the subnet", 400, neutronBody("InvalidIpForSubnet", "IP address 10.9.200.1 is not a valid IP for the specified subnet."), true, ClassTerminal, true},
		{"no such network", 404, neutronBody("NetworkNotFound", "Network "+id+" could not be found."), true, ClassNotFound, true},
		{"no router joins them", 404, neutronBody("ExternalGatewayForFloatingIPNotFound", "External network 1 is not reachable from subnet 2."), true, ClassUnreachable, true},
		{"policy", 403, neutronBody("PolicyNotAuthorized", "((rule:create_port and rule:create_port:binding:host_id)) is disallowed by policy"), true, ClassForbidden, false},
		{"subnet in use", 409, neutronBody("SubnetInUse", "Unable to complete operation on subnet "+id+": One or more ports have an IP allocation from this subnet."), false, ClassInUse, true},
		{"network in use", 409, neutronBody("NetworkInUse", "Unable to complete operation on network "+id+". There are one or more ports still in use on the network."), false, ClassInUse, true},
		{"router in use", 409, neutronBody("RouterInUse", "Router "+id+" still has ports"), false, ClassInUse, true},
		{"group in use", 409, neutronBody("SecurityGroupInUse", "Security Group "+id+" in use."), false, ClassInUse, true},
		{"router's port", 409, neutronBody("ServicePortInUse", "Port "+id+" cannot be deleted directly via the port API: has device owner network:router_interface."), false, ClassInUse, true},
		{"interface of a floating ip", 409, neutronBody("RouterInterfaceInUseByFloatingIP", "Router interface for subnet "+id+" on router "+id+" cannot be deleted, as it is required by one or more floating IPs."), false, ClassInUse, true},
		{"stale", 412, neutronBody("RevisionNumberConstraintFailed", "Constrained to 0, but current revision is 3"), false, ClassStale, false},
		{"unknown conflict", 409, neutronBody("SomethingNew", "try again"), false, ClassRetry, true},
		{"keystone", 401, `{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}`, true, ClassUnauthorized, false},
		{"too many", 429, "slow down", true, ClassThrottled, false},
		{"too large", 413, "<html><body><h1>413 Request Entity Too Large</h1></body></html>", true, ClassThrottled, false},
		{"server error on a create", 500, neutronBody("HTTPInternalServerError", "Request Failed: internal server error"), true, ClassAmbiguous, false},
		{"gateway time-out on a create", 504, "<html>504</html>", true, ClassAmbiguous, false},
		{"unavailable on a create", 503, "", true, ClassAmbiguous, false},
		{"bad gateway on a create", 502, "", true, ClassAmbiguous, false},
		{"server error on a delete", 500, "", false, ClassRetry, false},
		{"gateway time-out on a list", 504, "", false, ClassRetry, false},
		{"not implemented", 501, "", true, ClassTerminal, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cause := gophercloud.ErrUnexpectedResponseCode{Actual: test.status, Body: []byte(test.body), ResponseHeader: http.Header{}}
			err := newError(call{op: "creating", kind: kinds()[drivers.KindPort], create: test.create}, cause, true)
			if got := Classify(fmt.Errorf("wrapped: %w", err)); got != test.want {
				t.Errorf("%s is %v, want %v", err, got, test.want)
			}
			if got := individual(err); got != test.individual {
				t.Errorf("%s individual: %t, want %t", err, got, test.individual)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("more than one line: %q", err.Error())
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
		want         Class
	}{
		{"a create that was cut", true, true, reset, ClassAmbiguous},
		{"a create that was never sent", true, false, reset, ClassRetry},
		{"a create that took too long", true, true, context.DeadlineExceeded, ClassAmbiguous},
		{"a delete that was cut", false, true, reset, ClassRetry},
		{"no new token", true, true, &gophercloud.ErrUnableToReauthenticate{ErrOriginal: reset, ErrReauth: reset}, ClassRetry},
		{
			"password changed", true, true,
			&gophercloud.ErrUnableToReauthenticate{ErrReauth: gophercloud.ErrUnexpectedResponseCode{Actual: 401}}, ClassUnauthorized,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Classify(newError(call{create: test.create}, test.err, test.sent)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if got := Classify(nil); got != ClassNone {
		t.Errorf("no error is %v", got)
	}
	if got := Classify(reset); got != ClassRetry {
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
		{"absurdly long", 429, "86400", longestRetryAfter},
		{"429 without one", 429, "", defaultRetryAfter},
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
			if got := RetryAfter(fmt.Errorf("wrapped: %w", newError(call{}, cause, true))); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
