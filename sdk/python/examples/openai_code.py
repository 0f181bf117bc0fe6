"""Code with variables that persist, as a tool of the OpenAI Agents SDK. Needs `pip install openai-agents` and a model."""

import asyncio
from typing import Union

from agents import Agent, Model, Runner, function_tool

from sandboxd import AsyncSandbox


async def main(task: str, model: Union[str, Model]) -> str:
    async with AsyncSandbox.create("code-interpreter") as sandbox:
        agent = Agent(name="analyst", model=model, tools=[function_tool(sandbox.as_code_tool())])
        result = await Runner.run(agent, task)
        return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(main("What is the median of the first hundred primes?", "gpt-5")))
