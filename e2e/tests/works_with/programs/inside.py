"""What the programs that test other programs inside a sandbox share: the sandbox, and this host's settings for registries."""

import contextlib
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import names  # noqa: F401
from sandboxd import Sandbox

IMAGE = "works-programs"
AUTHORITIES = "/usr/local/share/authorities.pem"
HOST_AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


@contextlib.contextmanager
def sandbox(**options):
    """A sandbox from the image that has the programs."""
    with Sandbox.create(IMAGE, timeout="10m", **options) as created:
        yield created


@contextlib.contextmanager
def sandbox_with_registries():
    """One whose pip and npm use the registries of this host."""
    with sandbox(env=registry_settings()) as created:
        if HOST_AUTHORITIES.exists():
            created.files.write(AUTHORITIES, HOST_AUTHORITIES.read_bytes())
        yield created


def registry_settings():
    """Variables for pip and npm. The certificate authorities of this host may be more than those of the image."""
    settings = {"npm_config_registry": answer("npm", "config", "get", "registry")}
    index = os.environ.get("PIP_INDEX_URL") or answer(sys.executable, "-m", "pip", "config", "get", "global.index-url")
    settings["PIP_INDEX_URL"] = index
    if HOST_AUTHORITIES.exists():
        settings |= {name: AUTHORITIES for name in ("PIP_CERT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")}
    return {name: value for name, value in settings.items() if value}


def answer(program, *arguments):
    """What a program of this host prints, if it can be run."""
    if shutil.which(program) is None:
        return ""
    run = subprocess.run([program, *arguments], capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else ""


def passes(sandbox, command, **options):
    """The output of a command that must succeed."""
    return sandbox.execute(command, timeout="4m", check=True, **options).stdout


def install(sandbox, command):
    """Runs a command that needs a registry. Without one, the program is skipped."""
    result = sandbox.execute(command, timeout="4m")
    if result.exit_code != 0:
        shown = f"{result.stdout}\n{result.stderr}".strip().splitlines()[-3:]
        skip(f"'{command}' found no registry: {' '.join(shown)}")


def skip(reason):
    print(f"skip: {reason}", flush=True)
    raise SystemExit


def get(url):
    """The response of a port, which may open a little later."""
    context = ssl.create_default_context(cafile=os.environ["SANDBOXD_CERTIFICATE"])
    for _ in range(150):
        try:
            with urllib.request.urlopen(url, context=context, timeout=10) as response:
                return response.read().decode()
        except urllib.error.HTTPError as error:
            if error.code != 502:
                raise
        time.sleep(0.2)
    raise AssertionError(f"{url} did not respond")
