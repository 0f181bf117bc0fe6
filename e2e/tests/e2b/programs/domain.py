"""Uses a sandbox whose domain is known only from the response to the create."""

import os

import names
import httpx
from e2b import Sandbox

assert "E2B_DOMAIN" not in os.environ
sandbox = Sandbox.create(timeout=60)
assert sandbox.sandbox_domain.startswith("sandboxes.localhost:"), sandbox.sandbox_domain
assert sandbox.commands.run("echo hi").stdout == "hi\n"
sandbox.files.write("a", "b")
assert httpx.get(sandbox.download_url("a")).text == "b"
same = Sandbox.connect(sandbox.sandbox_id)
assert same.files.read("a") == "b"
assert same.get_host(80).endswith(f".{sandbox.sandbox_domain}"), same.get_host(80)
assert same.kill()
names.passed()
