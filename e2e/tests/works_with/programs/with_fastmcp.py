"""The client of FastMCP over HTTP and stdio: it lists tools, runs a command, and writes and reads a file."""

import asyncio
import os

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

HTTP = StreamableHttpTransport(os.environ["MCP_URL"], headers={"Authorization": f"Bearer {os.environ['SANDBOXD_API_KEY']}"})
STDIO = StdioTransport(
    os.environ["MCP_COMMAND"],
    ["mcp"],
    env={name: os.environ[name] for name in ("SANDBOXD_URL", "SANDBOXD_API_KEY", "SANDBOXD_CERTIFICATE", "HOME")},
)


async def use(transport):
    async with Client(transport) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert {"run_command", "write_file", "read_file"} <= names, names
        sandbox = (await client.call_tool("create_sandbox", {})).structured_content["sandboxId"]

        async def call(tool, **arguments):
            return await client.call_tool(tool, {"sandboxId": sandbox, **arguments}, raise_on_error=False)

        result = await call("run_command", command="echo $((6 * 7))")
        assert result.structured_content["stdout"] == "42\n", result
        await call("write_file", path="/tmp/notes.txt", content="kept\n")
        read = await call("read_file", path="/tmp/notes.txt")
        assert "kept" in str(read.content), read
        failed = await call("run_command", command=7)
        assert failed.is_error, failed
        assert not (await call("manage_sandboxes", action="terminate")).is_error


for transport in (HTTP, STDIO):
    asyncio.run(use(transport))
print("ok", flush=True)
