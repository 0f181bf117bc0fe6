"""An agent of agno with the toolkit for E2B: it runs code, and reads a file that the code has written."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.e2b import E2BTools

from model import Model, call

CODE = "open('/tmp/total', 'w').write(str(sum(range(10))))\nprint('written')"

with Model(call("run_python_code", code=CODE), call("run_command", command="cat /tmp/total"), "It is 45.") as model:
    tools = E2BTools(sandbox_options={"template": "code-interpreter-v1"})
    try:
        agent = Agent(model=OpenAIChat(id="scripted", base_url=model.url, api_key="none"), tools=[tools], telemetry=False)
        answer = agent.run("Sum the numbers below 10 by code.").content
    finally:
        tools.sandbox.kill()
    assert answer == "It is 45.", answer
    results = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert "written" in results[0] and "45" in results[1], results
print("ok", flush=True)
