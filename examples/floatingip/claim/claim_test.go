// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"testing"

	"example.org/raven-driver-floatingip/claim"

	"github.com/kuryr/raven/plugins/sdktest"
)

// TestGolden compares what becomes of testdata/*/in.yaml, by direct call and over gRPC.
func TestGolden(t *testing.T) { sdktest.Golden(t, claim.New(), "testdata") }

// TestConforms puts the driver through the conformance suite.
func TestConforms(t *testing.T) { sdktest.Conform(t, claim.New(), "../manifests/example.yaml") }
