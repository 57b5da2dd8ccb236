// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What systemd hands over as credentials is read last, and nothing else of that folder is.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := write("kuryr.conf", "[neutron]\nusername = kuryr\npassword = from the file\n")
	write("credentials/raven.conf", "[neutron]\npassword = handed over\n")
	write("credentials/other", "[neutron]\npassword = not a configuration file\n")
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Join(dir, "credentials"))
	values, err := (&globalFlags{files: []string{own}}).loader().LoadCore()
	if err != nil {
		t.Fatal(err)
	}
	if user, password := values.String("neutron", "username"), values.String("neutron", "password"); user != "kuryr" ||
		password != "handed over" {
		t.Errorf("got user %q, password %q", user, password)
	}
}
