"""An evaluation of Inspect AI whose sample runs in a sandbox, built from a Dockerfile."""

import pathlib
import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash

DOCKERFILE = "FROM ubuntu:24.04\nRUN echo 42 > /answer\n"

with tempfile.TemporaryDirectory() as folder:
    dockerfile = pathlib.Path(folder, "Dockerfile")
    dockerfile.write_text(DOCKERFILE)
    script = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat /answer; cat notes.txt"}),
        ModelOutput.from_content("mockllm/model", "It is 42."),
    ]
    for output in script:
        # Otherwise tokens are counted, by a table from the internet.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    task = Task(
        dataset=[Sample(input="What is in /answer?", target="42", files={"notes.txt": "a note\n"})],
        solver=[use_tools(bash(timeout=30)), generate()],
        scorer=includes(),
        sandbox=("e2b", str(dockerfile)),
    )
    model = get_model("mockllm/model", custom_outputs=script)
    [log] = eval(task, model=model, log_dir=folder, display="none")
    assert log.status == "success", log.error and log.error.message
    sample = log.samples[0]
    assert sample.scores["includes"].value == "C", sample.scores
    [tool] = [message for message in sample.messages if message.role == "tool"]
    assert tool.error is None, tool.error
    assert "42" in tool.text and "a note" in tool.text, tool.text
print("ok", flush=True)
