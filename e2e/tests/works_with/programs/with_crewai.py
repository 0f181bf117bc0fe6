"""A crew of one agent with the tool for E2B: it runs a command in a sandbox."""

import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"

from crewai import LLM, Agent, Crew, Task
from crewai_tools import E2BExecTool

from model import Model, call

tool = E2BExecTool(persistent=True)
with Model(call("e2b_sandbox_exec", command="echo $((6 * 7))"), "42") as model:
    llm = LLM(model="openai/scripted", base_url=model.url, api_key="none")
    agent = Agent(role="clerk", goal="compute", backstory="A careful clerk.", tools=[tool], llm=llm)
    task = Task(description="Compute 6 times 7 by a command.", expected_output="a number", agent=agent)
    try:
        answer = Crew(agents=[agent], tasks=[task]).kickoff().raw
    finally:
        tool.close()
    assert answer.strip() == "42", answer
    results = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert results and "42" in results[0], model.seen()
print("ok", flush=True)
