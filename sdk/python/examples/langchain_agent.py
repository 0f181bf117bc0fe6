"""A sandbox as a tool of LangChain. Needs `pip install langchain`, the package of a model's provider, and a model."""

from typing import Union

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool

from sandboxd import Sandbox


def main(task: str, model: Union[str, BaseChatModel]) -> str:
    with Sandbox.create("ubuntu:24.04") as sandbox:
        agent = create_agent(model, tools=[tool(sandbox.as_tool())])
        result = agent.invoke({"messages": [("user", task)]})
        return str(result["messages"][-1].content)


if __name__ == "__main__":
    print(main("Which Linux distribution is this?", "openai:gpt-5"))
