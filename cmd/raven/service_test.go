package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr/raven/service/config"
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
	sources, err := (&globalFlags{files: []string{own}}).sources()
	if err != nil {
		t.Fatal(err)
	}
	values, _, err := config.Load(known(sources, coreOptions()), coreOptions())
	if err != nil {
		t.Fatal(err)
	}
	if user, password := values.String("neutron", "username"), values.String("neutron", "password"); user != "kuryr" || password != "handed over" {
		t.Errorf("got user %q, password %q", user, password)
	}
}
