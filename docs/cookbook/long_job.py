"""
A job of hours. Its output continues where it ended when the service restarts, and when this program does.

    long_job.py                             starts the job and follows it
    long_job.py SANDBOX EXECUTION [AFTER]   follows it again, from a position that this program has printed
"""

import os
import sys
from typing import Optional

from sandboxd import Sandbox, Stdout

IMAGE = os.environ.get("IMAGE", "ubuntu:24.04")
STEPS = os.environ.get("STEPS", "3600")

JOB = 'for step in $(seq 1 "$STEPS"); do echo "step $step"; sleep 1; done'


def follow(sandbox: Sandbox, execution_id: str, after: Optional[str] = None) -> int:
    job = sandbox.executions.get(execution_id)
    with job.follow(after=after) as output:
        for part in output:
            if isinstance(part, Stdout):
                print(part.line, flush=True)
            # A program that is started again goes on here.
            print(f"at {output.offset}", file=sys.stderr, flush=True)
    code = job.wait().exit_code
    return 1 if code is None else code


def main() -> int:
    if len(sys.argv) > 2:
        sandbox, execution_id, after = Sandbox.connect(sys.argv[1]), sys.argv[2], sys.argv[3:4]
    else:
        # The timeout is that of the sandbox: it must be longer than the job. A running command counts as activity, so the sandbox
        # is not paused meanwhile.
        sandbox = Sandbox.create(IMAGE, memory="2g", timeout="24h", env={"STEPS": STEPS})
        execution_id, after = sandbox.start(JOB).id, []
        print(f"{sandbox.id} {execution_id}", file=sys.stderr, flush=True)
    code = follow(sandbox, execution_id, *after)
    # Without a `with` block, which would also end the job when this program is interrupted.
    sandbox.terminate()
    return code


if __name__ == "__main__":
    sys.exit(main())
