// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-plugin"

	"github.com/kuryr/raven/plugins/wire"
)

// refusal is a driver's error about its configuration, which may be several errors, in one line.
type refusal struct{ error }

func (r refusal) Error() string {
	return "configuration refused: " + strings.ReplaceAll(r.error.Error(), "\n", "; ")
}

func (r refusal) Unwrap() error { return r.error }

// exitText says in one line how the process ended and what it said last.
func (p *process) exitText() string {
	how := "exited"
	if state := p.cmd.ProcessState; state != nil {
		how = "exited with " + strings.Replace(state.String(), "exit status", "status", 1)
		if strings.HasPrefix(state.String(), "signal: ") {
			how = "was ended by " + state.String()
		}
	}
	return how + p.lastWords()
}

func (p *process) lastWords() string {
	if words := p.lines.last(); words != "" {
		return "; it wrote: " + words
	}
	return ""
}

// explain says in one line why there is no connection.
func (p *process) explain(err error) error {
	if p.pid() == 0 {
		return err
	}
	if line := p.handshakeLine(); line != "" {
		return p.explainHandshake(strings.Split(line, "|"), err)
	}
	select {
	case <-p.exited:
	case <-time.After(time.Second): // it ends a moment after its standard output
		return fmt.Errorf("%s is not a Raven driver: %w%s", p.path, err, p.lastWords())
	}
	words := p.lines.last()
	switch {
	case strings.Contains(words, "This binary is a plugin"):
		return fmt.Errorf("%s is a plugin of another program, not a Raven driver (it does not accept the magic cookie %s)",
			p.path, wire.CookieKey)
	case strings.Contains(words, "is a driver of Raven"):
		return fmt.Errorf("%s is a driver for another Raven (it does not accept the magic cookie %s)", p.path,
			wire.CookieValue)
	case p.cmd.ProcessState.Success():
		return fmt.Errorf("%s is not a Raven driver: it %s before the handshake", p.path, p.exitText())
	default:
		return fmt.Errorf("%s %s before the handshake", p.path, p.exitText())
	}
}

func (p *process) explainHandshake(parts []string, err error) error {
	switch {
	case parts[0] != strconv.Itoa(plugin.CoreProtocolVersion):
		return fmt.Errorf("%s is no Raven driver: it shakes hands by go-plugin's protocol %s, not %d", p.path, parts[0],
			plugin.CoreProtocolVersion)
	case parts[1] != strconv.Itoa(wire.ProtocolVersion):
		return fmt.Errorf("%s speaks driver protocol %s, this Raven speaks %d: use builds that match", p.path, parts[1],
			wire.ProtocolVersion)
	case len(parts) < 5 || parts[4] != string(plugin.ProtocolGRPC):
		return fmt.Errorf("%s does not speak gRPC", p.path)
	}
	select {
	case <-p.exited:
		return fmt.Errorf("%s %s after the handshake", p.path, p.exitText())
	default:
		return fmt.Errorf("connecting to %s: %w%s", p.path, err, p.lastWords())
	}
}
