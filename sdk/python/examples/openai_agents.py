"""A sandbox as a tool of the OpenAI Agents SDK. Needs `pip install openai-agents` and a model."""

import asyncio
from typing import Union

from agents import Agent, Model, Runner, function_tool

from sandboxd import AsyncSandbox


async def main(task: str, model: Union[str, Model]) -> str:
    async with AsyncSandbox.create("ubuntu:24.04") as sandbox:
        agent = Agent(name="engineer", model=model, tools=[function_tool(sandbox.as_tool())])
        result = await Runner.run(agent, task)
        return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(main("Which Linux distribution is this?", "gpt-5")))
