"""A sandbox agent of OpenAI's Agents SDK: it runs a command, and its session stores and restores the workspace."""

import asyncio

from agents import OpenAIChatCompletionsModel, RunConfig, Runner, set_tracing_disabled
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.capabilities import Shell
from openai import AsyncOpenAI

from model import Model, call

set_tracing_disabled(True)


async def run_agent(session, model):
    chat = OpenAIChatCompletionsModel("scripted", AsyncOpenAI(base_url=model.url, api_key="none"))
    agent = SandboxAgent(name="clerk", model=chat, capabilities=[Shell()])
    return await Runner.run(agent, "Compute 6 times 7.", run_config=RunConfig(sandbox=SandboxRunConfig(session=session)))


async def main():
    client = E2BSandboxClient()
    session = await client.create(options=E2BSandboxClientOptions(sandbox_type="e2b", timeout=120))
    try:
        await session.start()
        result = await session.exec("echo kept > notes.txt; uname -s")
        assert (result.exit_code, result.stdout) == (0, b"Linux\n"), result
        with Model(call("exec_command", cmd="echo $((6 * 7))"), "It is 42.") as model:
            answer = await run_agent(session, model)
            assert answer.final_output == "It is 42.", answer
            results = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
            assert "42" in results[0], results
        archive = await session.persist_workspace()
        await session.exec("rm notes.txt")
        await session.hydrate_workspace(archive)
        assert (await session.exec("cat notes.txt")).stdout == b"kept\n"
    finally:
        await client.delete(session)


asyncio.run(main())
print("ok", flush=True)
