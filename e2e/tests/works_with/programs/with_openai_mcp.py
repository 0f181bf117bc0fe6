"""An agent of OpenAI's Agents SDK with the tools of the MCP server, over HTTP."""

import asyncio
import os

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

from model import Model, call

set_tracing_disabled(True)
PARAMETERS = {"url": os.environ["MCP_URL"], "headers": {"Authorization": f"Bearer {os.environ['SANDBOXD_API_KEY']}"}}


async def main():
    async with MCPServerStreamableHttp(PARAMETERS, client_session_timeout_seconds=60) as server:
        created = await server.call_tool("create_sandbox", {})
        sandbox = created.structured_content["sandboxId"]
        with Model(call("run_command", sandboxId=sandbox, command="echo $((6 * 7))"), "It is 42.") as model:
            chat = OpenAIChatCompletionsModel("scripted", AsyncOpenAI(base_url=model.url, api_key="none"))
            answer = await Runner.run(Agent(name="clerk", model=chat, mcp_servers=[server]), "Compute 6 times 7.")
            assert answer.final_output == "It is 42.", answer
            results = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
            assert "42" in str(results[0]), results
        await server.call_tool("manage_sandboxes", {"action": "terminate", "sandboxId": sandbox})


asyncio.run(main())
print("ok", flush=True)
