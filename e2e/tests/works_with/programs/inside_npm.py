"""npm inside a sandbox: a package with dependencies, and a script of package.json."""

import json

from inside import install, passes, sandbox_with_registries

PACKAGE = {"name": "works", "version": "1.0.0", "type": "module", "scripts": {"start": "node main.js"}}
MAIN = "import semver from 'semver'\nconsole.log(semver.inc('1.2.3', 'minor'))\n"

with sandbox_with_registries() as created:
    created.files.write("/tmp/works/package.json", json.dumps(PACKAGE), parents=True)
    created.files.write("/tmp/works/main.js", MAIN)
    install(created, "cd /tmp/works && npm install --no-audit --no-fund --loglevel=error semver")
    assert passes(created, "npm start --silent", cwd="/tmp/works") == "1.3.0\n"
print("ok", flush=True)
