"""FastAPI inside a sandbox: an application behind an exposed port, which continues after a pause."""

import json

from inside import get, install, passes, sandbox_with_registries

MAIN = """
from fastapi import FastAPI

app = FastAPI()
seen = []

@app.get("/double/{number}")
def double(number: int) -> dict[str, int]:
    seen.append(number)
    return {"result": 2 * number, "calls": len(seen)}
"""

with sandbox_with_registries() as created:
    passes(created, "python3 -m venv /tmp/env")
    install(created, "/tmp/env/bin/pip install -q --disable-pip-version-check fastapi uvicorn")
    created.files.write("/tmp/main.py", MAIN)
    server = created.start("exec /tmp/env/bin/uvicorn main:app --host 0.0.0.0 --port 8000", cwd="/tmp")
    url = created.ports.expose(8000, visibility="public").url
    assert json.loads(get(f"{url}/double/21")) == {"result": 42, "calls": 1}
    created.pause()
    assert json.loads(get(f"{url}/double/4")) == {"result": 8, "calls": 2}
    assert "double" in get(f"{url}/openapi.json")
    server.cancel()
print("ok", flush=True)
