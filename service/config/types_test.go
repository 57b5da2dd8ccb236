// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/service/config"
)

// TestTypes reads one value of each type and refuses another with a sentence that says what is allowed.
func TestTypes(t *testing.T) {
	type refused string
	for name, tc := range map[string]struct {
		option config.Option
		text   string
		want   any // refused: the end of the error
	}{
		"pattern": {config.Option{Pattern: "^[a-z]+$"}, "abc", "abc"},
		"pattern missed": {
			config.Option{Pattern: "^[a-z]+$"},
			"aBc",
			refused(`"aBc" does not match the pattern; allowed: text that matches ^[a-z]+$`),
		},
		"pattern in any case": {config.Option{Pattern: "^[a-z]+$", IgnoreCase: true}, "aBc", "aBc"},
		"length":              {config.Option{MaxLength: 3}, "äöü", "äöü"},
		"too long": {
			config.Option{MaxLength: 3},
			"abcd",
			refused(`"abcd" is longer than 3 characters; allowed: any text, at most 3 characters`),
		},
		"a number of choices": {config.Option{Type: config.Integer, Choices: []string{"4", "6"}}, "06", int64(6)},
		"no number of choices": {
			config.Option{Type: config.Integer, Choices: []string{"4", "6"}},
			"5",
			refused(`"5" is not one of the choices; allowed: 4, 6`),
		},
		"ip": {config.Option{Type: config.IP}, "fd00::1", "fd00::1"},
		"ip with a zone": {
			config.Option{Type: config.IP},
			"fe80::1%eth0",
			refused(`"fe80::1%eth0" is not an IP address; allowed: an IP address`),
		},
		"ip with a zero": {
			config.Option{Type: config.IP}, "10.0.0.01", refused(`is not an IP address; allowed: an IP address`),
		},
		"ip of a version": {
			config.Option{Type: config.IP, IPVersion: 4}, "fd00::1", refused(`is not an IP address; allowed: an IPv4 address`),
		},
		"an empty ip": {
			config.Option{Type: config.IP}, "", refused(`"" is not an IP address; allowed: an IP address`),
		},
		"cidr": {config.Option{Type: config.CIDR}, "10.0.0.0/8", "10.0.0.0/8"},
		"cidr with host bits": {
			config.Option{Type: config.CIDR},
			"10.0.0.1/8",
			refused(`is not a CIDR; allowed: a range of IP addresses as 10.0.0.0/8 or fd00::/64, without host bits`),
		},
		"cidr of a version": {
			config.Option{Type: config.CIDR, IPVersion: 6}, "10.0.0.0/8", refused(`without host bits`),
		},
		"uri": {
			config.Option{Type: config.URI}, "https://[fd00::1]:6443/a?b#c", "https://[fd00::1]:6443/a?b#c",
		},
		"uri without a host": {
			config.Option{Type: config.URI}, "file:///etc", refused(`is not a uri; allowed: a URI with a scheme and a host`),
		},
		"uri without a scheme": {
			config.Option{Type: config.URI}, "example.com/x", refused(`a URI with a scheme and a host`),
		},
		"uri with a space": {
			config.Option{Type: config.URI}, "http://a/b c", refused(`a URI with a scheme and a host`),
		},
		"uri of a scheme": {
			config.Option{Type: config.URI, Schemes: []string{"http", "https"}},
			"ftp://a",
			refused(`a URI with a host, of scheme http or https`),
		},
		"hostname": {config.Option{Type: config.Hostname}, "node-1.example.com.", "node-1.example.com"},
		"hostname with a line": {
			config.Option{Type: config.Hostname}, "node_1", refused(`is not a hostname; allowed: a host name`),
		},
		"hostname of digits": {
			config.Option{Type: config.Hostname}, "10.0.0.256", refused(`is not a hostname; allowed: a host name`),
		},
		"host address":         {config.Option{Type: config.HostAddress}, "10.0.0.2", "10.0.0.2"},
		"host address by name": {config.Option{Type: config.HostAddress}, "localhost", "localhost"},
		"no host address": {
			config.Option{Type: config.HostAddress},
			"10.0.0.256",
			refused(`is not a host address; allowed: an IP address or a host name`),
		},
		"list of ranges": {
			config.Option{Type: config.List, Item: config.CIDR}, "10.0.0.0/8, fd00::/8", []string{"10.0.0.0/8", "fd00::/8"},
		},
		"list with a wrong item": {
			config.Option{Type: config.List, Item: config.Port},
			"80,x",
			refused(`"x" is not a port; allowed: a comma-separated list, each item being a port number`),
		},
		"dict of numbers": {
			config.Option{Type: config.Dict, Item: config.Integer, Max: new(9.0)},
			"a:1,b:9",
			map[string]string{"a": "1", "b": "9"},
		},
		"dict with a wrong one": {
			config.Option{Type: config.Dict, Item: config.Integer, Max: new(9.0)},
			"a:10",
			refused(
				`a: "10" is too large; allowed: key:value pairs separated by commas, each key once, each value being a whole number, at most 9`,
			),
		},
		"multi with a pattern": {config.Option{Type: config.Multi, Pattern: "="}, "a=b", []string{"a=b"}},
		"multi against it": {
			config.Option{Type: config.Multi, Pattern: "="},
			"a",
			refused(`"a" does not match the pattern; allowed: text that matches =`),
		},
		"float in hex": {
			config.Option{Type: config.Float}, "0x1p-2", refused(`is not a floating point; allowed: a number`),
		},
		"an empty boolean": {
			config.Option{Type: config.Boolean},
			"",
			refused(`"" is not a boolean; allowed: true, 1, on, yes or false, 0, off, no`),
		},
		"a secret": {
			config.Option{Pattern: "^x", Secret: true},
			"hush",
			refused(`the value (****) does not match the pattern; allowed: text that matches ^x`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.option.Group, tc.option.Name = "g", "o"
			values, _, err := config.Load(config.Sources{Environ: []string{"OS_G__O=" + tc.text}}, []config.Option{tc.option})
			if end, bad := tc.want.(refused); bad {
				if err == nil || !strings.HasSuffix(err.Error(), string(end)) {
					t.Errorf("got  %v\nwant …%s", err, end)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _ := values.Lookup("g", "o")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMisdeclaredRules(t *testing.T) {
	for want, option := range map[string]config.Option{
		"it has both choices and a pattern":                   {Choices: []string{"a"}, Pattern: "a"},
		"its maximum is less than its minimum":                {Type: config.Integer, Min: new(2.0), Max: new(1.0)},
		"there is no IP version 5":                            {Type: config.IP, IPVersion: 5},
		"it cannot be both mutable and read at start only":    {Mutable: true, StartOnly: true},
		"its pattern: error parsing regexp":                   {Pattern: "("},
		"an item cannot be a list":                            {Type: config.List, Item: config.List},
		`unknown type "x" of items`:                           {Type: config.List, Item: "x"},
		`its default: "x" is not an IP address`:               {Type: config.IP, Default: "x"},
		`its default: "1" is not one of the choices`:          {Type: config.Integer, Default: "1", Choices: []string{"2"}},
		`its default: "y" does not match the pattern; allowe`: {Default: "y", Pattern: "x"},
	} {
		t.Run(want, func(t *testing.T) {
			option.Name = "o"
			if _, _, err := config.Load(config.Sources{}, []config.Option{option}); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
