"""A CodeAgent of smolagents whose code runs in a sandbox, with state between its steps."""

from model import Model
from smolagents import CodeAgent, OpenAIModel

FIRST = "Thought: count.\n<code>\nimport platform\ntotal = sum(range(5))\nprint(platform.system(), total)\n</code>"
SECOND = "Thought: answer.\n<code>\nfinal_answer(total * 2)\n</code>"

with Model(FIRST, SECOND) as model:
    with CodeAgent(
        tools=[],
        model=OpenAIModel(model_id="scripted", api_base=model.url, api_key="none"),
        executor_type="e2b",
        executor_kwargs={"template": "code-interpreter-v1"},
        verbosity_level=0,
    ) as agent:
        answer = agent.run("Sum the numbers below 5, and double the sum.")
    assert answer == 20, answer
    assert "Linux 10" in model.seen(), model.seen()
print("ok", flush=True)
