"""A trial of Harbor: it builds the environment of a task, carries out the solution, and verifies it."""

import json
import pathlib
import subprocess
import sys
import tempfile

FILES = {
    "task.toml": '[metadata]\ndifficulty = "easy"\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n'
    "[environment]\nbuild_timeout_sec = 120.0\ncpus = 2\nmemory_mb = 2048\n",
    "instruction.md": "Write the sum of the numbers in /data/numbers to /app/sum.\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\nRUN mkdir -p /app /data\nCOPY numbers /data/numbers\nWORKDIR /app\n",
    "environment/numbers": "1\n2\n39\n",
    "solution/solve.sh": "#!/bin/bash\nset -e\ntotal=0\nwhile read -r number; do total=$((total + number)); done </data/numbers\n"
    'echo "$total" >sum\n',
    "tests/test.sh": '#!/bin/bash\nmkdir -p /logs/verifier\n[ "$(cat /app/sum)" = 42 ] && echo 1 >/logs/verifier/reward.txt '
    "|| echo 0 >/logs/verifier/reward.txt\n",
}

with tempfile.TemporaryDirectory() as folder:
    task, trials = pathlib.Path(folder, "sum"), pathlib.Path(folder, "trials")
    for name, content in FILES.items():
        path = task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)
    command = [sys.executable, "-m", "harbor.cli.main", "trials", "start", "--path", str(task), "--agent", "oracle"]
    command += ["--env", "e2b", "--trials-dir", str(trials)]
    run = subprocess.run(command, capture_output=True, text=True)
    results = [json.loads(path.read_text()) for path in trials.glob("*/result.json")]
    assert run.returncode == 0 and len(results) == 1, f"{run.stdout}\n{run.stderr}"
    assert results[0]["exception_info"] is None, results[0]["exception_info"]
    assert results[0]["verifier_result"]["rewards"]["reward"] == 1, results[0]["verifier_result"]
print("ok", flush=True)
