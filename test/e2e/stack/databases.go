// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// databases adds MariaDB with the migrated databases of keystone, neutron and octavia. SQLite is enough for keystone
// only: the migrations of the others need MariaDB (measured). Migrating takes 50 s of processor, so its result is
// kept in the cache. What is committed is given to the kernel at once, so that it outlives a kill -9
// (innodb-flush-log-at-trx-commit=2).
func (b *builder) databases() {
	socket := b.path("sock", "mysql.sock")
	b.component(Component{
		Name: MariaDB,
		Argv: []string{
			"mariadbd", "--no-defaults", "--user=mysql", "--datadir=" + b.path("mysql"), "--socket=" + socket,
			"--skip-networking",
			"--pid-file=" + b.path("mysql", "mariadb.pid"), "--tmpdir=" + b.path("tmp"), "--innodb-flush-log-at-trx-commit=2",
			"--innodb-doublewrite=0",
			"--innodb-buffer-pool-size=256M", "--innodb-log-file-size=32M", "--skip-log-bin", "--max-connections=400",
			"--character-set-server=utf8mb3", "--collation-server=utf8mb3_general_ci", "--performance-schema=OFF",
		},
		Ready: Probe{Argv: []string{"mariadb", "--no-defaults", "-uroot", "-S", socket, "-e", "select 1"}},
	}, "migrated databases")
	b.step("migrated databases", nil, b.migratedDatabases)
	b.component(Component{
		Name:  Memcached,
		Argv:  []string{"memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", b.Port("memcached"), "-U", "0", "-m", "64"},
		Ready: Probe{Address: "127.0.0.1:" + b.Port("memcached")},
	})
	if b.err == nil {
		b.err = b.fernetKeys()
	}
}

// migratedDatabases puts MariaDB's folder in place: from the cache, or made and migrated and then kept there.
func (b *builder) migratedDatabases(ctx context.Context) error {
	key, err := b.databaseKey(ctx)
	if err != nil {
		return err
	}
	kept := filepath.Join(b.Cache, "e2e-databases-"+key+".tar")
	defer b.forgetDatabases()
	if _, err := os.Stat(kept); err == nil {
		if err := os.Chtimes(kept, time.Now(), time.Now()); err != nil {
			return err
		}
		_, err := b.Run(ctx, "tar", "-xf", kept, "-C", b.path("mysql"))
		return err
	}
	if err := b.migrate(ctx); err != nil {
		return err
	}
	if err := b.Stop(ctx, MariaDB, time.Minute); err != nil {
		return err
	}
	// Named only when it is whole, and written by one stack alone: several may come up at once.
	file, err := os.CreateTemp(b.Cache, filepath.Base(kept)+".*.new")
	if err != nil {
		return err
	}
	made := file.Name()
	if err := file.Close(); err != nil {
		return err
	}
	if _, err := b.Run(ctx, "tar", "-cf", made, "-C", b.path("mysql"), "."); err != nil {
		return errors.Join(err, os.Remove(made))
	}
	return os.Rename(made, kept)
}

// forgetDatabases removes from the cache what nobody has used for a week, and what was half written when somebody was
// killed.
func (b *builder) forgetDatabases() {
	for pattern, unused := range map[string]time.Duration{"*.tar": 7 * 24 * time.Hour, "*.new": 24 * time.Hour} {
		paths, _ := filepath.Glob(filepath.Join(b.Cache, "e2e-databases-"+pattern)) // the pattern is right
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > unused {
				_ = os.Remove(path) // the next stack tries again
			}
		}
	}
}

// databaseKey changes when a migration may: with the packages, and with what is done here.
func (b *builder) databaseKey(ctx context.Context) (string, error) {
	versions, err := b.Run(ctx, "dpkg-query", "-W", "mariadb-server", "python3-keystone", "python3-neutron",
		"python3-octavia")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte("1 "+versions)))[:16], nil
}

func (b *builder) migrate(ctx context.Context) error {
	if _, err := b.Run(ctx, "chown", "mysql:", b.path("mysql")); err != nil {
		return err
	}
	if _, err := b.Run(ctx, "mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir="+b.path("mysql"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"); err != nil {
		return err
	}
	if err := b.Start(ctx, MariaDB); err != nil {
		return err
	}
	_, err := b.Run(ctx, "mariadb", "--no-defaults", "-uroot", "-S", b.path("sock", "mysql.sock"), "-e",
		"CREATE DATABASE keystone; CREATE DATABASE neutron; CREATE DATABASE octavia")
	if err != nil {
		return err
	}
	manage := func(name string, argv ...string) step {
		return step{name: "migration of " + name, do: func(ctx context.Context) error {
			_, err := b.Run(ctx, argv...)
			return err
		}}
	}
	keystone := manage("keystone", "keystone-manage", "--config-file", b.path("etc", "keystone.conf"), "db_sync")
	// Without URLs: the catalog is made with each stack, which has ports of its own.
	bootstrap := manage("keystone's administrator", "keystone-manage", "--config-file", b.path("etc", "keystone.conf"),
		"bootstrap",
		"--bootstrap-password", password, "--bootstrap-username", "admin", "--bootstrap-project-name", "admin",
		"--bootstrap-region-id", "RegionOne")
	bootstrap.after = []string{keystone.name}
	return runSteps(ctx, []step{
		keystone, bootstrap,
		manage("neutron", "neutron-db-manage", "--config-file", b.path("etc", "neutron.conf"), "upgrade", "heads"),
		manage("octavia", "octavia-db-manage", "--config-file", b.path("etc", "octavia-schema.conf"), "upgrade", "head"),
	}, b.Progress)
}

// fernetKeys makes what keystone-manage fernet_setup and credential_setup make, 3 s sooner: a staged key 0 and a
// primary 1.
func (b *builder) fernetKeys() error {
	for _, path := range []string{"fernet/0", "fernet/1", "credential/0", "credential/1"} {
		key := make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return err
		}
		if err := os.WriteFile(b.path("keystone", path), []byte(base64.URLEncoding.EncodeToString(key)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// uwsgi adds an API that is served by uwsgi.
func (b *builder) uwsgi(c Component, conf, port string, threads int, wrap []string, also ...string) {
	ini := b.path("etc", c.Name+"-uwsgi.ini")
	if b.err == nil {
		content := strings.NewReplacer("NAME", c.Name, "PORT", port, "CONF", conf, "WSGI", c.Dir, "OVERRIDE", c.Conf,
			"THREADS", fmt.Sprint(threads)).Replace(uwsgiINI)
		b.err = os.WriteFile(ini, []byte(content), 0o644)
	}
	c.Dir = ""
	c.Argv = slices.Concat(wrap, []string{"uwsgi_python3", "--ini", ini})
	b.component(c, also...)
}

// Content-Length is removed and the connection closed because uwsgi's HTTP router does not look into answers.
const uwsgiINI = `[uwsgi]
plugins = python3
http-socket = 127.0.0.1:PORT
wsgi-file = WSGI
pyargv = --config-file=CONF --config-file=OVERRIDE
processes = 1
threads = THREADS
enable-threads = true
master = true
lazy-apps = true
thunder-lock = true
no-orphans = true
die-on-term = true
buffer-size = 65535
listen = 100
rem-header = Content-Length
add-header = Connection: close
log-format = %(ctime) %(method) %(uri) %(status) %(rsize) bytes %(msecs) ms %(var.HTTP_X_OPENSTACK_REQUEST_ID)
name = NAME
`
