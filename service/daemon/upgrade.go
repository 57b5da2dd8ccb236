// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/kuryr/raven/service/config"
)

// stamps say by path which file was there: another file, or other content, has another stamp.
type stamps map[string]string

func stampOf(path string) string {
	info, err := os.Stat(path) //nolint:gosec // the operator names the paths; only what stat says is looked at
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	inode := uint64(0)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprint(inode, " ", info.Size(), " ", info.ModTime().UnixNano())
}

// beside are the stamps of all files that a reload reads besides the configuration's own: whatever an option, or what
// clients read of their own accord, names.
func (l *Settings) beside() stamps {
	out := stamps{}
	add := func(path string) {
		if filepath.IsAbs(path) {
			out[path] = stampOf(path)
		}
	}
	for _, o := range l.Values.Options() {
		if strings.HasPrefix(o.Group, DriverGroup("")) {
			continue // a driver's program has its own stamp
		}
		switch value, _ := l.Values.Lookup(o.Group, o.Name); value := value.(type) {
		case string:
			add(value)
		case []string:
			for _, path := range value {
				add(path)
			}
		}
	}
	for _, variable := range []string{"KUBECONFIG", "OS_CLIENT_CONFIG_FILE", "SSL_CERT_FILE"} {
		for _, path := range filepath.SplitList(os.Getenv(variable)) {
			add(path)
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(filepath.Join(home, ".kube", "config"))
	}
	add("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	return out
}

// upgraded lists the drivers that run and whose programs were replaced since, if that is all that a reload would bring:
// then they alone are started anew, and no other driver and no watch is disturbed.
func (d *Daemon) upgraded(l *Settings, changes []config.Change) []*Watcher {
	r := d.current()
	if r == nil || len(changes) > 0 || len(r.watchers) != len(l.Programs) || !maps.Equal(r.beside, l.beside()) {
		return nil
	}
	var list []*Watcher
	for i, w := range r.watchers {
		then, now := w.Program(), l.Programs[i]
		now.Info.Version, now.Info.Description, now.Sandbox = then.Info.Version, then.Info.Description, then.Sandbox
		if !reflect.DeepEqual(then, now) || w.replaced.Load() || w.driver() == nil {
			return nil
		}
		if stamp := w.stamp.Load(); stamp != nil && *stamp != stampOf(now.Path) {
			list = append(list, w)
		}
	}
	return list
}

// errOtherWatches says that a replaced program watches something else than the old one: that takes a reload of
// everything.
var errOtherWatches = errors.New("it declares other watches")

// upgrade starts drivers anew in place.
func (d *Daemon) upgrade(ctx context.Context, watchers []*Watcher) error {
	for _, w := range watchers {
		if err := w.Restart(ctx); err != nil {
			return err
		}
		d.log.Info("driver was replaced in place", "driver", w.Name(), "version", w.driver().Info().Version)
	}
	if slices.ContainsFunc(watchers, func(w *Watcher) bool { return w.replaced.Load() }) {
		return errOtherWatches
	}
	return nil
}
