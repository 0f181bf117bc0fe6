"""Uses a key that lacks the scope execute, or a revoked key: keys.py limited|revoked

FULL_KEY is a key of the same account with all scopes.
"""

import os
import sys

import names
from e2b import AuthenticationException, Sandbox, SandboxException


def limited():
    full = Sandbox.create(timeout=60, api_key=os.environ["FULL_KEY"])
    assert full.commands.run("echo hi").stdout == "hi\n"
    sandbox = Sandbox.create(timeout=60)
    ids = [item.sandbox_id for item in Sandbox.list().next_items()]
    assert sorted(ids) == sorted([sandbox.sandbox_id, full.sandbox_id]), ids
    for each in ids:
        connected = Sandbox.connect(each)
        for call in (
            lambda: connected.commands.run("echo never"),
            lambda: connected.files.read("/etc/passwd"),
            lambda: connected.files.list("/"),
        ):
            refused(call)
    # Killing needs only the scope write.
    assert sandbox.kill() and Sandbox.kill(full.sandbox_id)


def refused(call):
    try:
        result = call()
    except (AuthenticationException, SandboxException) as error:
        text = f"{type(error).__name__} {error}".lower()
        assert "authentication" in text or "401" in text or "403" in text, text
    else:
        raise AssertionError(result)


def revoked():
    for call in (Sandbox.create, lambda: Sandbox.list().next_items(), lambda: Sandbox.kill("sb" + "0" * 20)):
        try:
            result = call()
        except AuthenticationException:
            continue
        raise AssertionError(result)


if sys.argv[1] == "limited":
    limited()
else:
    revoked()
names.passed()
