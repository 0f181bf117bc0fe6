"""The interpreter of CAMEL in a sandbox: a result, state between two runs, and an error of the code."""

import names  # noqa: F401
from camel.interpreters import E2BInterpreter

interpreter = E2BInterpreter(require_confirm=False)
try:
    assert "42" in interpreter.run("value = 6 * 7\nprint(value)", "python")
    assert "43" in interpreter.run("print(value + 1)", "python")
    assert "ZeroDivisionError" in interpreter.run("1 / 0", "python")
finally:
    interpreter._sandbox.kill()
print("ok", flush=True)
