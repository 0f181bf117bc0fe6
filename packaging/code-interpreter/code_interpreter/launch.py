"""Binds the port, then serves it in a background process.

The port listens before this returns, so a client can connect at once: its request waits until the server has imported
its libraries. A second start finds the port in use and does nothing, so concurrent starts need no lock.
"""

import argparse
import errno
import os
import socket

PORT = 49999
LOG = "/var/log/code-interpreter.log"
BACKLOG = 128


def main(arguments):
    parser = argparse.ArgumentParser(prog="code-interpreter", description="Serve Jupyter kernels over HTTP")
    parser.add_argument("--port", type=int, default=PORT, help="port on the loopback interface")
    parser.add_argument("--foreground", action="store_true", help="do not fork into the background")
    options = parser.parse_args(arguments)
    listener = listen(options.port)
    if listener is None:
        return 0
    if not options.foreground and not become_background():
        return 0
    from .server import serve

    serve(listener)
    return 0


def listen(port):
    """The listening socket, or None if the port is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    listener.setblocking(False)
    return listener


def become_background():
    """Returns True in a child with a session of its own, whose output goes to the log, and False in the parent."""
    if os.fork() != 0:
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError:
        log = null
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    return True
