# SPDX-License-Identifier: Apache-2.0
"""The process of a driver: go-plugin's handshake, mutual TLS, health, the lifeline, and an orderly end."""

import base64
import os
import signal
import sys
import tempfile
import threading
from concurrent import futures

import grpc

from . import log
from .service import MAX_MESSAGE, Service

COOKIE_KEY, COOKIE = "RAVEN_PLUGIN", "raven-driver-v1"
PROTOCOL = 1
OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 1000), ("grpc.keepalive_permit_without_calls", 1),
]
ATTACH = "RAVEN_ATTACH_"
DEBUG_HELP = """\
Driver {name} waits for a Raven of this user to attach to it; process {process}, for a debugger. Ctrl-C ends it.

kuryr.conf must allow it:      [raven]
                               allow_attach = true
A Raven that is started now:   export {variable}={path}
                               raven run
A Raven that runs: these lines in kuryr.conf, and a SIGHUP to it:
                               [driver:{name}]
                               attach = {path}

There is no deadline and no confinement for it, and Raven does not end it."""


def serve(driver, workers=4):
    """Serves a driver to the Raven that started this process, and returns when Raven is done with it. Started by hand, it says
    what this program is and ends the process."""
    if by_hand(driver):
        serve_debug(driver, workers)
        return
    handshake = take_stdout()
    log.set_up()
    done = threading.Event()
    if hold_lifeline():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Raven stops its drivers itself, after their work is drained
    server = new_server(driver, workers, done)
    # The folder is Raven's; a confined driver can make a socket there, and no folder of its own.
    path = os.path.join(os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.mkdtemp(), "driver-" + os.urandom(4).hex())
    certificate = listen(server, path)
    server.start()
    os.write(handshake, f"1|{PROTOCOL}|unix|{path}|grpc|{certificate}\n".encode())
    done.wait()
    server.stop(1).wait()
    os._exit(0)  # pylint: disable=protected-access # a translation that hangs must not keep the process


def serve_debug(driver, workers):
    """Serves a driver that no Raven started, under a debugger for example, and says how one attaches to it. Ctrl-C ends it."""
    ends = (signal.SIGTERM, signal.SIGINT)
    # They are waited for, and so the threads to come must not get them. A handler that wakes a waiting thread may come
    # a moment too early, and be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    server = new_server(driver, workers, threading.Event())  # a Raven that has enough of it does not end it
    name = driver.info().name
    with tempfile.TemporaryDirectory(prefix="raven-debug-") as folder:  # mode 0700: no other user may connect
        path = os.path.join(folder, "driver")
        server.add_insecure_port("unix:" + path)
        server.start()
        print(DEBUG_HELP.format(name=name, process=os.getpid(), variable=ATTACH + name.upper().replace("-", "_"), path=path), flush=True)
        signal.sigwait(ends)
        server.stop(1).wait()


def new_server(driver, workers, done):
    """A gRPC server of the driver and of go-plugin's services."""
    server = grpc.server(futures.ThreadPoolExecutor(8, "grpc"), options=OPTIONS)
    server.add_generic_rpc_handlers((Service(driver, workers).handler(), process_handlers(done)))
    return server


def listen(server, path):
    """Listens with mutual TLS: our own new certificate, which the result holds, and Raven's, which alone is let in."""
    client = os.environ.get("PLUGIN_CLIENT_CERT", "").encode()
    if not client:
        server.add_insecure_port("unix:" + path)
        return ""
    from . import certificate  # pylint: disable=import-outside-toplevel # only where it is needed
    key, own, der = certificate.make()
    server.add_secure_port("unix:" + path, grpc.ssl_server_credentials([(key, own)], client, True))
    return base64.b64encode(der).decode().rstrip("=")


def process_handlers(done):
    """go-plugin's own services: health, and the request to end."""
    serving, empty = b"\x08\x01", b""

    def check(_request, _context):
        return serving

    def shutdown(_request, _context):
        threading.Timer(0.05, done.set).start()
        return empty

    def raw(data):
        return data

    unary = grpc.unary_unary_rpc_method_handler
    handlers = {
        "/grpc.health.v1.Health/Check": unary(check, raw, raw), "/plugin.GRPCController/Shutdown": unary(shutdown, raw, raw),
    }

    class Handlers(grpc.GenericRpcHandler):
        """Finds a handler by the whole name of its method."""

        def service(self, handler_call_details):
            return handlers.get(handler_call_details.method)

    return Handlers()


def take_stdout():
    """Keeps standard output for the handshake; everything else that is printed goes to standard error, and to Raven's log."""
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return kept


def hold_lifeline():
    """Ends the process when the pipe ends whose other end is Raven's: it goes with Raven however that ends."""
    number = os.environ.get("RAVEN_LIFELINE_FD")
    if not number:
        return False
    fd = int(number)
    os.set_inheritable(fd, False)

    def wait():
        while os.read(fd, 1):
            pass
        os._exit(0)  # pylint: disable=protected-access

    threading.Thread(target=wait, daemon=True).start()
    return True


def by_hand(driver):
    """Answers a person, and ends the process. It says whether the driver is to be served for a core that attaches to it."""
    if os.environ.get(COOKIE_KEY) == COOKIE and len(sys.argv) < 2:
        return False
    info = driver.info()
    command = sys.argv[1].lstrip("-") if len(sys.argv) > 1 else ""
    if command == "version":
        print(f"{info.name} {info.version or '(unknown version)'} (driver protocol {PROTOCOL})")
        sys.exit(0)
    if command in ("help", "h"):
        print(f"{info.name} {info.version}, a driver of Raven (driver protocol {PROTOCOL})\n{info.description}")
        for option in info.options:
            print(f"  [{option.group}] {option.name}\n      {option.help}")
        sys.exit(0)
    if command == "debug":
        return True
    if os.environ.get(COOKIE_KEY) == COOKIE:
        return False
    print(
        f"{sys.argv[0]} is a driver of Raven, which starts it by itself; it does nothing when started by hand.\n"
        f"To use it, put it into [raven] plugin_dir as raven-driver-{info.name} and add {info.name} to [raven] drivers in "
        "kuryr.conf.\n--help shows its options; --debug serves it for a Raven that is told to attach to it.", file=sys.stderr)
    sys.exit(1)
