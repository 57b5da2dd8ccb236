// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ownRetry is the time until what could not be done is tried again.
const ownRetry = 5 * time.Second

// report says how each part stands, and, once pods can be plugged in, annotates the Node, installs the plugin and
// writes the CNI configuration. It returns after which time it is worth another call.
func (n *Node) report(ctx context.Context) (again time.Duration) {
	again = n.config.Resync
	view, _, unready := n.ovs.View()
	if unready != nil {
		n.switched.NotReady(unready.Error())
	} else {
		n.switched.Ready()
		unready = n.lacks(view)
	}
	n.reportCluster()
	if unready != nil {
		n.served.NotReady(unready.Error())
		return min(again, ownRetry)
	}
	// Before the Node is ready, so that the ports of its first pods are made for the right chassis.
	if err := n.publish(ctx, view); err != nil && ctx.Err() == nil {
		n.watched.Degraded(err.Error())
		n.log.Warn("the Node could not be annotated", "error", err)
		again = min(again, ownRetry)
	}
	if err := n.install(n.config.Resync); err != nil {
		n.served.NotReady(err.Error())
		n.log.Warn("CNI is not set up", "error", err)
		return min(again, ownRetry)
	}
	n.served.Ready()
	return again
}

// reportCluster says how the watches stand.
func (n *Node) reportCluster() {
	if err := n.objects.notSynced(podWatch); err != nil {
		n.watched.NotReady("waiting for " + err.Error())
		return
	}
	for _, status := range n.objects.seen.Status() {
		if status.Error != "" {
			n.watched.Degraded(status.Error)
			return
		}
	}
	n.watched.Ready()
}

// install puts the plugin, and then the CNI configuration, where the container runtime looks for them, each at once and
// only where it differs. What was found as it should be is not looked at again for a while.
func (n *Node) install(pause time.Duration) error {
	if !n.installed.IsZero() && n.config.Clock.Since(n.installed) < pause {
		return nil
	}
	if err := n.installPlugin(); err != nil {
		return err
	}
	if err := n.writeConf(); err != nil {
		return err
	}
	n.installed = n.config.Clock.Now()
	return nil
}

func (n *Node) installPlugin() error {
	if dir := n.config.BinDir; dir != "" {
		plugin, err := os.ReadFile(n.config.Plugin)
		if err != nil {
			return fmt.Errorf("[node] cni_plugin: %w", err)
		}
		changed, err := replace(filepath.Join(dir, PluginName), plugin, 0o755)
		if err != nil {
			return fmt.Errorf("[node] cni_bin_dir: %w", err)
		}
		if changed {
			n.log.Info("CNI plugin installed", "path", filepath.Join(dir, PluginName))
		}
	}
	return nil
}

func (n *Node) writeConf() error {
	if dir := n.config.ConfDir; dir != "" {
		text, err := n.config.conflist()
		if err != nil {
			return err
		}
		path := filepath.Join(dir, n.config.ConfName)
		changed, err := replace(path, text, 0o644)
		if err != nil {
			return fmt.Errorf("[node] cni_conf_dir: %w", err)
		}
		if changed {
			n.log.Info("CNI configuration written", "path", path)
		}
	}
	return nil
}

// conflist is the CNI configuration. cniVersion is what runtimes before version 1.1 of the specification read.
func (c *Config) conflist() ([]byte, error) {
	own, err := encode(map[string]any{"type": PluginName, "socket": c.Socket})
	if err != nil {
		return nil, err
	}
	chain, err := c.chain()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(struct {
		CNIVersion  string            `json:"cniVersion"`
		CNIVersions []string          `json:"cniVersions"`
		Name        string            `json:"name"`
		Plugins     []json.RawMessage `json:"plugins"`
	}{c.Versions[0], c.Versions, "raven", append([]json.RawMessage{own}, chain...)}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the CNI configuration: %w", err)
	}
	return append(text, '\n'), nil
}

// replace writes a file by another name, and gives it its own in one step: who reads it sees the old or the new one.
func replace(path string, content []byte, mode fs.FileMode) (changed bool, err error) {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
		return false, os.Chmod(path, mode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // container runtimes make it like that
		return false, err
	}
	// Runtimes take no file for a configuration that ends like this. One that is there a killed daemon has left.
	unfinished := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	file, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err != nil {
		return false, err
	}
	return true, os.Rename(file.Name(), path)
}
