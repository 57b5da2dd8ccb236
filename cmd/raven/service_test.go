// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// A secret must not get into a unit, which everybody can read.
func TestNoSecretOnTheCommandLineOfAService(t *testing.T) {
	for text, refused := range map[string]bool{
		"neutron.password=hush":                      true,
		"NEUTRON.password=hush":                      true,
		"keystone_client.admin_password=hush":        true,
		"neutron.application_credential_secret=hush": true,
		"crow.api_token=hush":                        true, // a driver's
		"DEFAULT.debug=true":                         false,
		"kubernetes.token_file=/etc/kuryr/token":     false,
	} {
		err := (&globalFlags{set: []string{text}}).publicSet()
		if (err != nil) != refused || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("--set %s: %v", text, err)
		}
	}
}
