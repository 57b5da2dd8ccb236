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
	body, err := call(ctx, folder, http.MethodPost, "/drivers/"+name+"/restart")
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(body, &report); err != nil {
		return report, fmt.Errorf("what answers is no Raven: %w", err)
	}
	return report, nil
}

// Ask returns a part of the daemon whose runtime folder is named, or else of the one that systemd runs: PartConfig or
// one of the others.
func Ask(ctx context.Context, folder, part string) ([]byte, error) {
	return call(ctx, folder, http.MethodGet, "/"+part)
}

// call sends a request to a daemon's control socket.
func call(ctx context.Context, folder, method, path string) ([]byte, error) {
	socket, err := controlSocket(folder)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: restartTimeout + 10*time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	defer client.CloseIdleConnections()
	target := url.URL{Scheme: "http", Host: "raven", Path: path}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking the daemon at %s: %w", socket, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the daemon at %s: %w; is `raven run` running, with this [raven] runtime_dir?", socket,
			err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", socket, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
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
