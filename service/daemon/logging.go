// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"log/slog"
	"strings"

	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/log"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/watch"
)

// openLog opens the log that the configuration asks for. Secrets never get into it.
func openLog(l *Settings, stderr io.Writer, color bool) (*log.Log, error) {
	c := log.FromConfig(l.Values, "raven")
	c.Stderr = stderr
	c.Color = color
	return log.New(c, l.Redactor())
}

// Redactor hides the secrets of the configuration, and of the clouds.yaml and the kubeconfig that it names.
func (l *Settings) Redactor() *log.Redactor {
	redactor := log.NewRedactor()
	redactor.Add(l.secrets()...)
	return redactor
}

// secrets are those of the configuration, and of the clouds.yaml and the kubeconfig that it names.
func (l *Settings) secrets() []string {
	secrets := l.Values.Secrets()
	cloud, _ := openstack.FromConfig(l.Values) // what is missing in it is told where it is used
	secrets = append(secrets, cloud.Secrets()...)
	if rest, err := watch.RESTConfig(l.Values, l.loader.Version); err == nil {
		secrets = append(secrets, watch.Secrets(rest)...)
	}
	return secrets
}

// report says at start what the configuration is.
func (l *Settings) report(logger *slog.Logger) {
	l.logWarnings(logger)
	if !l.Values.Bool(config.DefaultGroup, "log_options") {
		return
	}
	var text strings.Builder
	if err := l.Values.Show(&text); err != nil {
		logger.Warn("the options cannot be shown", "error", err)
	}
	for line := range strings.Lines(text.String()) {
		logger.Debug("option", "value", strings.TrimSpace(line))
	}
}

func (l *Settings) logWarnings(logger *slog.Logger) {
	for _, w := range l.Warnings {
		logger.Warn("configuration: " + w.String()) //nolint:sloglint // one message each, as oslo.config logs them
	}
}
