"""An agent of Haystack with the toolset for E2B: it writes a file and runs a command on it."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_integrations.tools.e2b import E2BToolset

from model import Model, call

toolset = E2BToolset()
names = {tool.name for tool in toolset}
assert {"run_bash_command", "write_file"} <= names, names
script = [call("write_file", path="notes.txt", content="one\ntwo\n"), call("run_bash_command", command="wc -l < notes.txt"), "Two lines."]
with Model(*script) as model:
    generator = OpenAIChatGenerator(model="scripted", api_base_url=model.url, api_key=Secret.from_token("none"))
    agent = Agent(chat_generator=generator, tools=toolset)
    try:
        answer = agent.run([ChatMessage.from_user("Write two lines and count them.")])["last_message"].text
    finally:
        toolset.close()
    assert answer == "Two lines.", answer
    results = [message for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert "2" in str(results[1]["content"]), results
print("ok", flush=True)
