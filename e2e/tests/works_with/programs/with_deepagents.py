"""A deep agent whose files and commands are those of a sandbox."""

from deepagents import create_deep_agent
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_openai import ChatOpenAI

from model import Model, call

HOME = "/home/user"  # tidy: allow(machine-path): the home inside a sandbox
PATH = f"{HOME}/greeting.txt"
script = [
    call("write_file", file_path=PATH, content="hello\n"),
    call("edit_file", file_path=PATH, old_string="hello", new_string="hello there"),
    call("execute", command=f"cat {PATH} && whoami"),
    "Done.",
]
with Model(*script) as model, Sandbox.create() as sandbox:
    agent = create_deep_agent(
        model=ChatOpenAI(model="scripted", base_url=model.url, api_key="none"),
        backend=E2BSandbox(sandbox=sandbox),
    )
    result = agent.invoke({"messages": [{"role": "user", "content": "Greet in a file."}]})
    assert result["messages"][-1].content == "Done.", result
    output = [message.content for message in result["messages"] if message.type == "tool"][-1]
    assert "hello there" in output and "user" in output, output
    assert sandbox.files.read(PATH) == "hello there\n"
print("ok", flush=True)
