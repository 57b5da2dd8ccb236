// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service/config"
)

const group = "web"

// Options declares the options of the page.
func Options() []config.Option {
	const declarer = "kuryr.raven"
	return []config.Option{
		{
			Group: group, Name: "enabled", Type: config.Boolean, Default: "false", Declarer: declarer, StartOnly: true,
			Help: "Serve the web page, which shows the network and changes nothing.",
		},
		{
			Group: group, Name: "host", Type: config.HostAddress, Default: "127.0.0.1", Declarer: declarer, StartOnly: true,
			Help: "The address that the page is served on. Any other than one of the loopback interface needs token_file.",
		},
		{
			Group: group, Name: "port", Type: config.Port, Default: "8084", Declarer: declarer, StartOnly: true,
			Help: "Its port; 0 takes any free one.",
		},
		{
			Group: group, Name: "token_file", Declarer: declarer, StartOnly: true,
			Help: "The path of a file with one line, of at least 16 characters: the password that a browser asks for, with " +
				"any user name, or the bearer token of another client. It is sent as it is: put TLS in front where the network " +
				"is not trusted. It is read at the start.",
		},
	}
}

// Config says what is served, and where.
type Config struct {
	// Enabled is whether anything is served.
	Enabled bool
	// Host and Port of the page; port 0 takes a free one.
	Host string
	Port int
	// TokenFile holds the password; empty: none is asked for.
	TokenFile string
	// Source is what the page shows.
	Source Source
	Clock  clock.WithTicker // nil: the real one
	Logger *slog.Logger     // nil: slog.Default()
}

// FromConfig reads the options that Options declares.
func FromConfig(v *config.Values) Config {
	return Config{
		Enabled: v.Bool(group, "enabled"), Host: v.String(group, "host"), Port: int(v.Int(group, "port")),
		TokenFile: v.String(group, "token_file"),
	}
}

// URL is the address of the page; empty: none is served, or at a port that is not known before.
func (c Config) URL() string {
	if !c.Enabled || c.Port == 0 {
		return ""
	}
	return "http://" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
}

// shortestToken is how many characters a token has at least.
const shortestToken = 16

// token reads the password; "" where none is asked for, which is so on loopback only.
func (c Config) token() (string, error) {
	if c.TokenFile == "" {
		if !loopback(c.Host) {
			return "", &config.Error{Group: group, Option: "host", Message: c.Host + " can be reached from other hosts: set " +
				"token_file as well, or keep 127.0.0.1"}
		}
		return "", nil
	}
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", &config.Error{Group: group, Option: "token_file", Message: err.Error()}
	}
	token := strings.TrimSpace(string(text))
	if len(token) < shortestToken {
		return "", &config.Error{Group: group, Option: "token_file", Message: fmt.Sprintf(
			"%s holds %d characters: write at least %d, such as those of `openssl rand -hex 16`", c.TokenFile, len(token),
			shortestToken)}
	}
	return token, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
