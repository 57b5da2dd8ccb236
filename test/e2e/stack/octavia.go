// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// sharedSockets is where octavia-lib looks for its sockets, and where nobody can tell it otherwise (measured, 3.1.0).
const sharedSockets = "/run/octavia"

// ownSockets begins the call of a server that sees the folder sockets as shared, and nobody else does. What is made
// on the machine for that is an empty folder, which stays: removed, it would vanish from under the servers of every
// stack that stands (measured, Linux 6.18).
func ownSockets(sockets, shared string) []string {
	return []string{
		"unshare", "-m", "--propagation", "private", "sh", "-c",
		`mkdir -p "$1" && mount --bind "$0" "$1" && shift && exec "$@"`, sockets, shared,
	}
}

// octavia adds Octavia with the OVN provider, which needs the API and the driver agent only, and the amphora provider
// with no-op amphorae, which needs the worker and RabbitMQ too.
func (b *builder) octavia() {
	b.rabbitMQ()
	b.write("octavia-schema.conf", "etc/octavia-schema.conf")
	b.pythonFiles()
	sockets := b.path("sock", "octavia")
	if b.err == nil {
		b.err = errors.Join(os.MkdirAll(sockets, 0o755), b.octaviaPKI())
	}
	private := ownSockets(sockets, sharedSockets)
	python := []string{"PYTHONPATH=" + b.path("py")}
	conf := b.path("etc", "octavia.conf")
	b.write("octavia.conf", "etc/octavia.conf")
	// Only the worker wants the network of the amphorae, which is known late.
	amphorae := b.path("etc", "octavia-amphorae.conf")
	b.step("network of the amphorae", []string{"networks"}, func(context.Context) error {
		return os.WriteFile(amphorae, []byte("[controller_worker]\namp_boot_network_list = "+b.management+"\n"), 0o644)
	})
	agent, worker := b.override(OctaviaAgent), b.override(OctaviaWorker)
	b.component(Component{
		Name: OctaviaAgent, After: []string{MariaDB, NorthDB, SouthDB}, Conf: agent, Env: python,
		Argv: append(private, "/usr/bin/octavia-driver-agent", "--config-file", conf, "--config-file", agent),
		Clean: []string{
			filepath.Join(sockets, "status.sock"), filepath.Join(sockets, "stats.sock"), filepath.Join(sockets, "get.sock"),
		},
		// Its sockets are not to be touched: the agent forks for each connection, and one that is closed without a word
		// leaves a process that spins for good (measured, 11.0.0).
		Ready: Probe{Path: filepath.Join(sockets, "status.sock")},
	}, "OVN's databases begun")
	b.component(Component{
		Name: OctaviaWorker, After: []string{RabbitMQ, MariaDB, NeutronServer, Keystone}, Conf: worker, Env: python,
		Argv: []string{
			"python3", b.path("py", "octavia_worker.py"), "--config-file", conf, "--config-file", amphorae, "--config-file",
			worker,
		},
		// What is cast before the consumer has its queue might be lost.
		Ready: Probe{Text: "Starting V2 consumer"},
	}, "network of the amphorae")
	b.uwsgi(Component{
		Name: OctaviaAPI, After: []string{Keystone, MariaDB, Memcached, OctaviaAgent}, Conf: b.override(OctaviaAPI),
		Env: python,
		Dir: b.path("py", "octavia_api.py"), Ready: Probe{URL: b.URL().Octavia + "/"},
	}, conf, b.Port("octavia"), 8, private)
}

// rabbitMQ adds RabbitMQ, and an epmd of its own: RabbitMQ would otherwise start one that listens on all interfaces
// and stays.
func (b *builder) rabbitMQ() {
	b.write("rabbitmq.conf", "etc/rabbitmq.conf")
	plugins := b.path("etc", "rabbitmq-plugins")
	if b.err == nil {
		b.err = os.WriteFile(plugins, []byte("[].\n"), 0o644)
	}
	erlang := []string{"ERL_EPMD_PORT=" + b.Port("epmd"), "ERL_EPMD_ADDRESS=127.0.0.1"}
	b.component(Component{
		Name: Epmd, Argv: []string{"epmd", "-address", "127.0.0.1", "-port", b.Port("epmd")},
		Ready: Probe{Address: "127.0.0.1:" + b.Port("epmd")},
	})
	b.component(Component{
		Name: RabbitMQ, After: []string{Epmd}, Argv: []string{"/usr/lib/rabbitmq/bin/rabbitmq-server"},
		Env: append(erlang, "HOME="+b.path("rabbit"), "RABBITMQ_NODENAME=raven@localhost",
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			"RABBITMQ_NODE_PORT="+b.Port("rabbitmq"), "RABBITMQ_DIST_PORT="+b.Port("rabbitmq-dist"),
			"RABBITMQ_BASE="+b.path("rabbit"),
			"RABBITMQ_MNESIA_BASE="+b.path("rabbit", "mnesia"), "RABBITMQ_LOG_BASE="+b.path("artifacts", "log"),
			"RABBITMQ_LOGS=-",
			"RABBITMQ_PID_FILE="+b.path("rabbit", "pid"), "RABBITMQ_CONFIG_FILE="+b.path("etc", "rabbitmq.conf"),
			"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_ENABLED_PLUGINS_FILE="+plugins,
			"RABBITMQ_FEATURE_FLAGS_FILE="+b.path("rabbit", "feature_flags"),
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none +sbwtdcpu "+
				"none +sbwtdio none"),
		Ready: Probe{Address: "127.0.0.1:" + b.Port("rabbitmq")},
	})
}

// pythonFiles writes the stand-in for Nova with its entry point, and the patched API and worker.
func (b *builder) pythonFiles() {
	b.write("octavia_compute.py", "py/raven_e2e_compute.py")
	b.write("octavia_api.py", "py/octavia_api.py")
	b.write("octavia_worker.py", "py/octavia_worker.py")
	if b.err != nil {
		return
	}
	info := b.path("py", "raven_e2e-1.dist-info")
	b.err = errors.Join(os.MkdirAll(info, 0o755),
		os.WriteFile(filepath.Join(info, "METADATA"), []byte("Metadata-Version: 2.1\nName: raven-e2e\nVersion: 1\n"), 0o644),
		os.WriteFile(filepath.Join(info, "entry_points.txt"),
			[]byte("[octavia.compute.drivers]\nraven_e2e_compute = raven_e2e_compute:Driver\n"), 0o644))
}

// octaviaPKI makes the certificates of the amphorae's authority and of its client. No-op amphorae look at neither.
func (b *builder) octaviaPKI() error {
	ca, err := newAuthority(b.path("octavia"), "raven-e2e-octavia")
	if err != nil {
		return err
	}
	if err := ca.issue("client", "octavia", ""); err != nil {
		return err
	}
	key, err := os.ReadFile(b.path("octavia", "client.key"))
	if err != nil {
		return err
	}
	certificate, err := os.ReadFile(b.path("octavia", "client.crt"))
	if err != nil {
		return err
	}
	return os.WriteFile(b.path("octavia", "client.pem"), append(key, certificate...), 0o600)
}
