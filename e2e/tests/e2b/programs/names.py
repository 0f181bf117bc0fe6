"""Resolves names below .localhost to 127.0.0.1, as browsers do: some C libraries do not. Imported for this effect."""

import os
import socket
import sys

lookup = socket.getaddrinfo


def getaddrinfo(host, *arguments, **options):
    text = host.decode() if isinstance(host, bytes) else host or ""
    return lookup("127.0.0.1" if text.endswith(".localhost") else host, *arguments, **options)


socket.getaddrinfo = getaddrinfo


def passed():
    """Ends the program without the interpreter's cleanup, in which threads of e2b's transport (pyqwest) sometimes abort it."""
    print("ok")
    sys.stdout.flush()
    os._exit(0)
