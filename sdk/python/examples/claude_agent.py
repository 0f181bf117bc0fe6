"""A sandbox as a tool of the Claude Agent SDK. Needs `pip install claude-agent-sdk` and its command line program."""

import asyncio
from typing import Any, Dict

from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, create_sdk_mcp_server, query, tool

from sandboxd import AsyncSandbox


def shell_tool(sandbox: AsyncSandbox) -> "SdkMcpTool[Any]":
    run = sandbox.as_tool()

    @tool("shell", "Runs a bash command line in an isolated Linux sandbox.", {"command": str})
    async def shell(arguments: Dict[str, Any]) -> Dict[str, Any]:
        return {"content": [{"type": "text", "text": await run(arguments["command"])}]}

    return shell


async def main(task: str) -> None:
    async with AsyncSandbox.create("ubuntu:24.04") as sandbox:
        server = create_sdk_mcp_server("sandbox", tools=[shell_tool(sandbox)])
        # Without built-in tools, commands run in the sandbox only.
        options = ClaudeAgentOptions(mcp_servers={"sandbox": server}, tools=[], allowed_tools=["mcp__sandbox__shell"])
        async for message in query(prompt=task, options=options):
            print(message)


if __name__ == "__main__":
    asyncio.run(main("Which Linux distribution is this?"))
