"""Runs code through the package e2b-code-interpreter, with its synchronous and its asynchronous classes."""

import asyncio
import base64

import names
from e2b_code_interpreter import AsyncSandbox, Sandbox

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 4])\nplt.show()"
PNG = b"\x89PNG\r\n\x1a\n"


def check_results(sandbox):
    sandbox.run_code("x = 41")
    assert sandbox.run_code("x + 1").text == "42"
    execution = sandbox.run_code("import sys; print('out'); print('err', file=sys.stderr); 'last'")
    assert execution.logs.stdout == ["out\n"] and execution.logs.stderr == ["err\n"], execution
    assert execution.text == "'last'" and execution.error is None, execution
    failed = sandbox.run_code("print('before')\n1 / 0")
    assert failed.error.name == "ZeroDivisionError" and "division by zero" in failed.error.value, failed
    assert "ZeroDivisionError" in failed.error.traceback and failed.logs.stdout == ["before\n"], failed
    image = base64.b64decode(sandbox.run_code(PLOT).results[0].png)
    assert image.startswith(PNG) and len(image) > 1000, image[:20]


def check_streams(sandbox):
    seen = []
    code = "import time\nprint(1, flush=True)\ntime.sleep(0.3)\nprint(2, flush=True)\ndisplay('shown')\n1 / 0"
    sandbox.run_code(
        code,
        on_stdout=lambda message: seen.append(message.line),
        on_result=lambda result: seen.append(result.text),
        on_error=lambda error: seen.append(error.name),
    )
    assert seen == ["1\n", "2\n", "'shown'", "ZeroDivisionError"], seen


def check_contexts(sandbox):
    context = sandbox.create_code_context(cwd="/tmp", language="python")
    assert context.cwd == "/tmp" and context.language == "python", context
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "'/tmp'"
    assert context.id in [listed.id for listed in sandbox.list_code_contexts()]
    sandbox.run_code("y = 1", context=context)
    sandbox.restart_code_context(context)
    assert sandbox.run_code("y", context=context).error.name == "NameError"
    sandbox.remove_code_context(context)
    assert context.id not in [listed.id for listed in sandbox.list_code_contexts()]
    assert sandbox.run_code("x").text == "41"


def check_environment(sandbox):
    read = "import os; [os.environ.get('CREATED'), os.environ.get('ONCE')]"
    assert sandbox.run_code(read, envs={"ONCE": "1"}).text == "['from create', '1']"
    assert sandbox.run_code(read).text == "['from create', None]"
    assert sandbox.run_code("echo $((6 * 7))", language="bash").logs.stdout == ["42\n"]
    assert sandbox.run_code("const a = 20; a + 1", language="javascript").text == "21"


async def asynchronous():
    sandbox = await AsyncSandbox.create(timeout=120)
    seen = []
    execution = await sandbox.run_code("print('hello')\n6 * 7", on_stdout=lambda message: seen.append(message.line))
    assert execution.text == "42" and seen == ["hello\n"], execution
    context = await sandbox.create_code_context(cwd="/tmp")
    assert (await sandbox.run_code("import os; os.getcwd()", context=context)).text == "'/tmp'"
    await sandbox.remove_code_context(context)
    assert (await sandbox.run_code("1 / 0")).error.name == "ZeroDivisionError"
    await sandbox.files.write("data.txt", "from a file")
    assert (await sandbox.run_code("open('data.txt').read()")).text == "'from a file'"
    assert await sandbox.kill()


def synchronous():
    sandbox = Sandbox.create(timeout=120, envs={"CREATED": "from create"})
    assert sandbox.get_info().template_id == "code-interpreter-v1"
    check_results(sandbox)
    check_streams(sandbox)
    check_contexts(sandbox)
    check_environment(sandbox)
    assert sandbox.commands.run("echo beside").stdout == "beside\n"
    assert sandbox.kill()


if __name__ == "__main__":
    synchronous()
    asyncio.run(asynchronous())
    names.passed()
