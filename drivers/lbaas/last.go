// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"encoding/json"
	"slices"
)

// What the driver has written on a Service says what there is, for the settings that a load balancer cannot be
// described without.

// balancerDocument is what is read of the load balancer that was written on a Service.
type balancerDocument struct {
	Provider       string            `json:"provider"`
	AdditionalVIPs []json.RawMessage `json:"additional_vips"`
}

// balancerOf returns the load balancer that was written; it is empty without one.
func balancerOf(written map[string]string) balancerDocument {
	var there balancerDocument
	if json.Unmarshal([]byte(written[VIPAnnotation]), &there) != nil || badProvider(there.Provider) != "" {
		return balancerDocument{}
	}
	return there
}

// poolDocument is what is read of a pool that was written on a Service.
type poolDocument struct {
	Protocol  string `json:"protocol"`
	Algorithm string `json:"lb_algorithm"`
}

// poolsOf returns the pools that were written.
func poolsOf(written map[string]string) []poolDocument {
	var pools []poolDocument
	if json.Unmarshal([]byte(written[PoolsAnnotation]), &pools) == nil && len(pools) > 0 {
		return pools
	}
	var first poolDocument
	if json.Unmarshal([]byte(written[PoolAnnotation]), &first) != nil {
		return nil
	}
	return []poolDocument{first}
}

// algorithmOf returns the algorithm of the pools, which is the same in all; empty without pools.
func algorithmOf(written map[string]string) string {
	for _, pool := range poolsOf(written) {
		if slices.Contains(algorithms(), pool.Algorithm) {
			return pool.Algorithm
		}
	}
	return ""
}

// proxyOfPools returns the PROXY protocol of the pools, empty for none, and whether there are any pools.
func proxyOfPools(written map[string]string) (string, bool) {
	pools := poolsOf(written)
	for _, pool := range pools {
		if pool.Protocol == proxyV1 || pool.Protocol == proxyV2 {
			return pool.Protocol, true
		}
	}
	return "", len(pools) > 0
}
