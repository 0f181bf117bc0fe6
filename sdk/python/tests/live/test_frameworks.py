"""
The examples for frameworks, with models that are scripted, against a real service. Each is skipped if its framework is not installed.
The Claude Agent SDK is tested up to its tool server: a client of that server calls the tool, without the command line program.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path
from typing import Any, List

import pytest

from sandboxd import AsyncSandbox, Sandbox, Sandboxd

pytestmark = pytest.mark.skipif(not os.environ.get("SANDBOXD_URL"), reason="set SANDBOXD_URL to run")
IMAGE = os.environ.get("SANDBOXD_TEST_IMAGE", "ubuntu:24.04")
EXAMPLES = str(Path(__file__).resolve().parents[2] / "examples")
COMMAND = "echo $((6 * 7)); echo careful >&2; exit 3"
OUTPUT = "42\nstderr:\ncareful\nexit code 3"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    yield importlib.import_module
    for name in ("openai_agents", "openai_code", "langchain_agent", "claude_agent"):
        sys.modules.pop(name, None)


def openai_model(agents: Any, tool: str, arguments: str, seen: List[Any]) -> Any:
    """A model that calls the tool once and then answers. `seen` gets what it is asked, and the tools."""
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class ScriptedModel(agents.Model):  # type: ignore[misc,name-defined,unused-ignore]
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> Any:
            seen.append((input, more.get("tools") or rest[1]))
            if len(seen) == 1:
                output: Any = ResponseFunctionToolCall(
                    type="function_call", name=tool, arguments=arguments, call_id="call_1", id="fc_1"
                )
            else:
                text = ResponseOutputText(type="output_text", text="It is 42.", annotations=[])
                output = ResponseOutputMessage(
                    type="message", role="assistant", id="msg_1", status="completed", content=[text]
                )
            return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

        def stream_response(self, *arguments: Any, **more: Any) -> Any:
            raise NotImplementedError

    agents.set_tracing_disabled(True)
    return ScriptedModel()


def openai_outputs(seen: List[Any]) -> List[str]:
    return [item["output"] for item in seen[1][0] if item.get("type") == "function_call_output"]


def test_openai_agents(examples: Any) -> None:
    agents = pytest.importorskip("agents")
    seen: List[Any] = []
    model = openai_model(agents, "shell", '{"command": "' + COMMAND + '"}', seen)
    answer = asyncio.run(examples("openai_agents").main("What is 6 times 7?", model))
    assert answer == "It is 42."
    (shell,) = seen[0][1]
    assert shell.name == "shell" and "isolated Linux sandbox" in shell.description
    assert shell.params_json_schema["properties"]["command"]["description"] == "The bash command line."
    assert openai_outputs(seen) == [OUTPUT]


def test_openai_agents_run_code(examples: Any) -> None:
    agents = pytest.importorskip("agents")
    with Sandboxd() as client:
        image = client.images.get("code-interpreter")
    if image is None or image.status != "ready":
        pytest.skip("the service has no image code-interpreter")
    seen: List[Any] = []
    model = openai_model(agents, "python", '{"code": "x = 6; x * 7"}', seen)
    assert asyncio.run(examples("openai_code").main("What is 6 times 7?", model)) == "It is 42."
    (python,) = seen[0][1]
    assert python.name == "python" and "Variables, imports and files persist" in python.description
    assert openai_outputs(seen) == ["42"]


def test_langchain(examples: Any) -> None:
    pytest.importorskip("langchain.agents")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, ToolMessage

    seen: List[Any] = []

    class ScriptedModel(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            seen.extend(tools)
            return self

        def _generate(self, messages: Any, *rest: Any, **more: Any) -> Any:
            seen.extend(message.content for message in messages if isinstance(message, ToolMessage))
            return super()._generate(messages, *rest, **more)

    calls = [{"name": "shell", "args": {"command": COMMAND}, "id": "call_1"}]
    script = iter([AIMessage(content="", tool_calls=calls), AIMessage(content="It is 42.")])
    assert examples("langchain_agent").main("What is 6 times 7?", ScriptedModel(messages=script)) == "It is 42."
    assert seen[0].name == "shell" and set(seen[0].args) == {"command"}
    assert seen[-1] == OUTPUT


def test_claude_agent(examples: Any) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    client_module = pytest.importorskip("mcp.client")

    async def scenario() -> None:
        async with AsyncSandbox.create(IMAGE) as sandbox:
            shell = examples("claude_agent").shell_tool(sandbox)
            assert shell.name == "shell" and shell.input_schema == {"command": str}
            called = await shell.handler({"command": COMMAND})
            assert called == {"content": [{"type": "text", "text": OUTPUT}]}
            server = sdk.create_sdk_mcp_server("sandbox", tools=[shell])["instance"]
            if not hasattr(client_module, "Client"):
                pytest.skip("this version of mcp has no client for servers in the same process")
            async with client_module.Client(server) as client:
                (listed,) = (await client.list_tools()).tools
                assert listed.name == "shell"
                result = await client.call_tool("shell", {"command": COMMAND})
                assert [part.text for part in result.content] == [OUTPUT]

    asyncio.run(scenario())


def test_the_tool_tells_the_model_what_it_must_know() -> None:
    with Sandbox.create(IMAGE) as sandbox:
        shell = sandbox.as_tool(timeout=1)
        assert shell.__name__ == "shell" and shell.__doc__ and "Args:" in shell.__doc__
        assert shell("echo hello") == "hello" and shell("true") == "(no output)"
        assert shell("kill -9 $$") == "killed by SIGKILL"
        assert shell("echo a; sleep 5") == "a\nkilled after the time limit of 1 s"
        long = shell("seq 100000")
        assert len(long) < 17_000 and "characters omitted" in long and long.endswith("100000")
    with pytest.raises(Exception, match="terminated|does not exist|not found"):
        shell("true")
