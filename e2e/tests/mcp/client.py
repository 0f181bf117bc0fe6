"""Drives the MCP server with the official Python client.

    client.py stdio|http legacy|2026-07-28 tools|progress|cancel|snapshots|templates|many

The environment has MCP_COMMAND (the program of the stdio server), MCP_URL, SANDBOXD_API_KEY and SANDBOXD_CERTIFICATE.
"""

import json
import os
import ssl
import sys
import time

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

TOOLS = {
    "run_command", "run_code", "read_file", "write_file", "list_files", "expose_port", "create_sandbox", "manage_sandboxes",
    "manage_snapshots", "manage_templates",
}
# Calls at the same time, beside more commands than a sandbox runs at once.
PARALLEL = 100


def client(transport, mode, http):
    if transport == "stdio":
        server = StdioServerParameters(command=os.environ["MCP_COMMAND"], args=["mcp"], env=dict(os.environ))
    else:
        server = streamable_http_client(os.environ["MCP_URL"], http_client=http)
    return Client(server, mode=mode)


async def call(mcp, tool, arguments, **options):
    result = await mcp.call_tool(tool, arguments, **options)
    assert not result.is_error, result.content[0].text
    assert result.structured_content is not None
    return result.structured_content


async def refused(mcp, tool, arguments, *words):
    """The call fails as a tool, with a message that has these words."""
    result = await mcp.call_tool(tool, arguments)
    assert result.is_error, result
    for word in words:
        assert word in result.content[0].text, result.content[0].text


async def tools(mcp, place):
    listed = await mcp.list_tools()
    assert {tool.name for tool in listed.tools} == TOOLS, listed
    for tool in listed.tools:
        assert tool.description and tool.output_schema and tool.annotations, tool
        assert tool.input_schema["additionalProperties"] is False
    ran = await call(mcp, "run_command", {"command": "echo out; echo err >&2; exit 3", **place})
    assert (ran["stdout"], ran["stderr"], ran["exitCode"], ran["state"]) == ("out\n", "err\n", 3, "exited"), ran
    first = ran["sandboxId"]
    text = "ä€\n" * 30000
    await call(mcp, "write_file", {"path": "dir/long.txt", "content": text, **place})
    # The whole file, page by page.
    content, offset = "", 0
    while offset is not None:
        page = await call(mcp, "read_file", {"path": "dir/long.txt", "offset": offset, **place})
        assert page["sandboxId"] == first
        content += page["content"]
        offset = page.get("nextOffset")
    assert content == text
    await call(mcp, "write_file", {"path": "bytes", "content": "gP8=", "encoding": "base64", **place})
    page = await call(mcp, "read_file", {"path": "bytes", **place})
    assert (page["content"], page["encoding"]) == ("gP8=", "base64"), page
    await call(mcp, "write_file", {"path": "empty", "content": "", **place})
    assert (await call(mcp, "read_file", {"path": "empty", **place}))["content"] == ""
    assert (await call(mcp, "read_file", {"path": "/proc/version", **place}))["content"].startswith("Linux")
    entries = (await call(mcp, "list_files", place))["entries"]
    assert {"dir", "bytes", "empty"} <= {entry["name"] for entry in entries}, entries
    await outputs(mcp, place)
    await failures(mcp, place)
    await ports(mcp, place)
    async with anyio.create_task_group() as group:
        for _ in range(PARALLEL):
            group.start_soon(call, mcp, "list_files", place)
        for _ in range(12):
            group.start_soon(call, mcp, "run_command", {"command": "sleep 0.3", **place})
    listed = await call(mcp, "manage_sandboxes", {"action": "list"})
    assert first in [item["sandboxId"] for item in listed["sandboxes"]]


async def outputs(mcp, place):
    """Output longer than a page is read with cursors, without loss."""
    ran = await call(mcp, "run_command", {"command": "seq 1 60000; exit 7", **place})
    assert ran["exitCode"] == 7 and ran["tail"].endswith("60000\n") and ran["omittedBytes"] > 0
    output = ran["stdout"]
    while "cursor" in ran:
        assert len(json.dumps(ran)) < 150_000
        ran = await call(mcp, "run_command", {"cursor": ran["cursor"]})
        output += ran["stdout"]
    assert output == "".join(f"{number}\n" for number in range(1, 60001))
    started = time.monotonic()
    ran = await call(mcp, "run_command", {"command": "sleep 1; echo late; sleep 100", "background": True, **place})
    assert time.monotonic() - started < 5 and ran["state"] == "running"
    ran = await call(mcp, "run_command", {"cursor": ran["cursor"], "timeoutSeconds": 3})
    assert (ran["stdout"], ran["state"]) == ("late\n", "running"), ran
    ran = await call(mcp, "run_command", {"command": "sleep 100", "timeoutSeconds": 1, **place})
    assert ran["timedOut"] and "exitCode" not in ran, ran


async def failures(mcp, place):
    await refused(mcp, "read_file", {"path": "missing", **place}, "FILE_NOT_FOUND", "list_files")
    await refused(mcp, "read_file", {"path": "dir", **place}, "list_files")
    await refused(mcp, "run_command", {"command": "true", "sandboxId": "sb_00000000"}, "manage_sandboxes")
    await refused(mcp, "run_command", {"command": "true", "sandboxId": "../../x"}, "sandbox id")
    await refused(mcp, "run_command", {"cursor": "x"}, "cursor")
    await refused(mcp, "run_command", {**place}, "command")
    await refused(mcp, "run_command", {"command": "true", "timeoutSeconds": 301, **place}, "1 to 300")
    await refused(mcp, "run_command", {"command": "true", "unknown": 1}, "unknown field")
    await refused(mcp, "run_command", {"command": "x" * 70_000, **place}, "command")
    await refused(mcp, "write_file", {"path": "x", "content": "x" * (1 << 20) + "x", **place}, "1048576")
    await refused(mcp, "run_code", {"code": "1", **place}, "code-interpreter")
    await refused(mcp, "create_sandbox", {"image": "no-such-image"}, "image")
    await refused(mcp, "manage_sandboxes", {"action": "other"}, "terminate")
    # A name of an earlier version.
    await refused(mcp, "list_sandboxes", {}, "manage_sandboxes", '"action": "list"')
    try:
        await mcp.call_tool("no_such_tool", {})
    except Exception as error:
        assert "no_such_tool" in str(error), error
    else:
        raise AssertionError("an unknown tool was called")


async def ports(mcp, place):
    await call(mcp, "run_command", {"command": "true", **place})
    exposed = await call(mcp, "expose_port", {"port": 8000, **place})
    assert exposed["port"] == 8000 and not exposed["public"] and exposed["accessUrl"] != exposed["url"], exposed


async def progress(mcp, place):
    seen = []

    async def notified(progress, total, message):
        seen.append((progress, total, message))

    command = "for i in 1 2 3 4; do echo step $i; sleep 1; done"
    await call(mcp, "run_command", {"command": command, **place}, progress_callback=notified)
    assert len(seen) >= 2, seen
    assert seen == sorted(seen, key=lambda item: item[0]) and any("step" in (item[2] or "") for item in seen), seen


async def cancel(mcp, place):
    """A cancelled call kills its command."""
    await call(mcp, "run_command", {"command": "true", **place})
    with anyio.move_on_after(2) as scope:
        await mcp.call_tool("run_command", {"command": "touch started; exec sleep 7777", "timeoutSeconds": 200, **place})
    assert scope.cancelled_caught
    for _ in range(50):
        ran = await call(mcp, "run_command", {"command": "ls started; pgrep -f 'sleep 777[7]'", **place})
        assert "started" in ran["stdout"]
        if ran["exitCode"] != 0:
            return
        await anyio.sleep(0.2)
    raise AssertionError("the command runs on")


async def snapshots(mcp, place):
    """A snapshot, a rollback to it, forks, and a new sandbox from it."""

    async def content(sandbox):
        return (await call(mcp, "run_command", {"command": "cat file", "sandboxId": sandbox}))["stdout"]

    sandbox = (await call(mcp, "run_command", {"command": "echo before > file", **place}))["sandboxId"]
    taken = await call(mcp, "manage_snapshots", {"action": "take", "name": "before", **place})
    snapshot = taken["snapshotId"]
    assert (taken["sandboxId"], taken["name"], taken["memory"]) == (sandbox, "before", False), taken
    listed = await call(mcp, "manage_snapshots", {"action": "list", "sandboxId": sandbox})
    assert listed["snapshots"] == [taken], listed
    await call(mcp, "run_command", {"command": "echo after > file", **place})
    back = await call(mcp, "manage_snapshots", {"action": "rollback", "snapshotId": snapshot})
    assert (back["sandboxId"], back["state"]) == (sandbox, "running"), back
    assert await content(sandbox) == "before\n"
    forked = await call(mcp, "manage_sandboxes", {"action": "fork", "count": 2, **place})
    # With a session, its end terminates the forks: the caller of this program checks it.
    assert forked["endsWithSession"] == (not place), forked
    assert len(forked["forkIds"]) == 2
    created = await call(mcp, "create_sandbox", {"image": snapshot, "name": f"of-{snapshot}"})
    assert created["name"] == f"of-{snapshot}", created
    assert await content(created["name"]) == "before\n"
    assert created["image"] == snapshot, created
    for copy in [*forked["forkIds"], created["sandboxId"]]:
        assert await content(copy) == "before\n"
    for copy in [*(forked["forkIds"] if place else []), created["sandboxId"]]:
        await call(mcp, "manage_sandboxes", {"action": "terminate", "sandboxId": copy})
    await call(mcp, "manage_snapshots", {"action": "delete", "snapshotId": snapshot})
    await refused(mcp, "manage_snapshots", {"action": "rollback", "snapshotId": snapshot}, "SNAPSHOT_NOT_FOUND", "manage_snapshots")


async def templates(mcp, place):
    """Builds that succeed, fail, take long, and are cancelled."""
    slow = {"name": "slow", "dockerfile": "FROM ubuntu:24.04\nRUN echo begun; sleep 600\n"}
    dockerfile = "FROM ubuntu:24.04\nRUN echo making; echo made > /built\n"
    built = await call(mcp, "manage_templates", {"action": "build", "name": "fast", "dockerfile": dockerfile, "waitSeconds": 120})
    assert built["state"] == "ready", built
    # A step from the cache has no output.
    assert "making\n" in built["log"] or built["steps"]["cached"] == 1, built
    created = await call(mcp, "create_sandbox", {"image": built["templateId"]})
    copy = {"sandboxId": created["sandboxId"]}
    assert (await call(mcp, "run_command", {"command": "cat /built", **copy}))["stdout"] == "made\n"
    await call(mcp, "manage_sandboxes", {"action": "terminate", **copy})
    failing = {"name": "failing", "dockerfile": "FROM ubuntu:24.04\nRUN echo because >&2; exit 3\n", "waitSeconds": 120}
    failed = await call(mcp, "manage_templates", {"action": "build", **failing})
    assert (failed["state"], failed["error"]["line"]) == ("failed", 2) and "because\n" in failed["log"], failed
    waiting = await call(mcp, "manage_templates", {"action": "build", **slow, "waitSeconds": 1})
    assert waiting["state"] in ("queued", "building"), waiting
    for _ in range(20):
        waiting = await call(mcp, "manage_templates", {"action": "read_log", "templateId": waiting["templateId"], "waitSeconds": 2})
        if "begun\n" in waiting["log"]:
            break
    assert waiting["state"] == "building" and "begun\n" in waiting["log"], waiting
    with anyio.move_on_after(2) as scope:
        await mcp.call_tool("manage_templates", {"action": "build", **slow})
    assert scope.cancelled_caught
    for template in (built, failed, waiting):
        await call(mcp, "manage_templates", {"action": "delete", "templateId": template["templateId"]})
    for _ in range(50):
        left = (await call(mcp, "manage_templates", {"action": "list", "name": "slow"}))["templates"]
        if [template["state"] for template in left] == ["cancelled"]:
            await call(mcp, "manage_templates", {"action": "delete", "templateId": left[0]["templateId"]})
            return
        await anyio.sleep(0.2)
    raise AssertionError(f"the build of the cancelled call runs on: {left}")


async def many(mcp, place):
    """Calls in one session, 10 at a time."""
    count, width = int(os.environ.get("MCP_CALLS", "500")), 10
    ids = set()

    async def one(number):
        ran = await call(mcp, "run_command", {"command": f"echo {number}", **place})
        assert ran["stdout"] == f"{number}\n", ran
        ids.add(ran["sandboxId"])

    started = time.monotonic()
    for begin in range(0, count, width):
        async with anyio.create_task_group() as group:
            for number in range(begin, min(begin + width, count)):
                group.start_soon(one, number)
    assert len(ids) == 1, ids
    print(f"{count} calls in {time.monotonic() - started:.1f} s")


CASES = {
    "tools": tools, "progress": progress, "cancel": cancel, "snapshots": snapshots, "templates": templates, "many": many,
}


async def main(transport, mode, case):
    context = ssl.create_default_context(cafile=os.environ["SANDBOXD_CERTIFICATE"])
    headers = {"Authorization": f"Bearer {os.environ['SANDBOXD_API_KEY']}"}
    async with httpx2.AsyncClient(headers=headers, verify=context, timeout=330) as http:
        async with client(transport, mode, http) as mcp:
            place = {}
            if transport == "http" and mode != "legacy":
                # This version has no sessions.
                await refused(mcp, "run_command", {"command": "true"}, "create_sandbox")
                place = {"sandboxId": (await call(mcp, "create_sandbox", {}))["sandboxId"]}
            await CASES[case](mcp, place)
            if place:
                await call(mcp, "manage_sandboxes", {"action": "terminate", **place})
    print(f"ok: {transport} {mode} {case}")


anyio.run(main, *sys.argv[1:])
