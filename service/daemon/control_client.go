// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// OrderRestart tells the daemon whose runtime folder is named, or else the one that systemd runs, to replace a driver's
// process.
func OrderRestart(ctx context.Context, folder, name string) (report RestartReport, err error) {
	path, err := controlSocket(folder)
	if err != nil {
		return report, err
	}
	client := &http.Client{Timeout: restartTimeout + 10*time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	defer client.CloseIdleConnections()
	target := url.URL{Scheme: "http", Host: "raven", Path: "/drivers/" + name + "/restart"}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return report, fmt.Errorf("asking the daemon at %s: %w", path, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return report, fmt.Errorf("asking the daemon at %s: %w; is `raven run` running, with this [raven] runtime_dir?", path,
			err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return report, fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return report, errors.New(strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, &report); err != nil {
		return report, fmt.Errorf("what answers at %s is no Raven: %w", path, err)
	}
	return report, nil
}

// serviceRuntimeDir is where the daemon that systemd runs has its sockets; it hears that from systemd, and we do not.
const serviceRuntimeDir = "/run/raven/raven"

func controlSocket(folder string) (string, error) {
	for _, place := range []string{folder, serviceRuntimeDir} {
		path := filepath.Join(place, controlName)
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no daemon takes orders in %s or %s: is `raven run` running as this user, with this [raven] "+
		"runtime_dir?",
		folder, serviceRuntimeDir)
}
