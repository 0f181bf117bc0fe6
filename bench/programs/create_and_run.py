"""Times `Sandbox.create()` and `commands.run("echo hi")` with the package e2b, and the same with the native Python SDK, in
alternation. Prints the milliseconds of both as JSON: create_and_run.py COUNT"""

import json
import os
import sys
import time

import names  # noqa: F401
from e2b import Sandbox

import sandboxd

WARM_UP = 5
# In seconds. The pool of ready sandboxes is full again by then.
PAUSE = 0.3


def with_e2b():
    begin = time.perf_counter()
    sandbox = Sandbox.create()
    result = sandbox.commands.run("echo hi")
    took = time.perf_counter() - begin
    assert result.stdout == "hi\n", result
    assert sandbox.kill()
    return took


def natively(client):
    begin = time.perf_counter()
    sandbox = client.sandboxes.create("ubuntu:24.04")
    result = sandbox.execute("echo hi")
    took = time.perf_counter() - begin
    assert result.stdout == "hi\n", result
    sandbox.terminate()
    return took


def main(count):
    e2b, native = [], []
    with sandboxd.Sandboxd() as client:
        for _ in range(count + WARM_UP):
            for times, measure in ((e2b, with_e2b), (native, lambda: natively(client))):
                time.sleep(PAUSE)
                times.append(measure() * 1000)
    print(json.dumps({"e2b-python": {"sandboxd": e2b[WARM_UP:], "native-sdk": native[WARM_UP:]}}))
    # The interpreter's cleanup sometimes aborts in threads of e2b's transport.
    sys.stdout.flush()
    os._exit(0)


main(int(sys.argv[1]))
