"""Vite inside a sandbox: a build, and its server for development behind an exposed port, which sees changed files."""

from inside import get, install, passes, sandbox_with_registries

FILES = {
    "package.json": '{"name": "site", "private": true, "type": "module"}',
    "index.html": '<!doctype html><div id="app"></div><script type="module" src="/main.js"></script>',
    "main.js": "import { text } from './text.js'\ndocument.getElementById('app').textContent = text\n",
    "text.js": "export const text = 'first text'\n",
    "vite.config.js": "export default { server: { host: '0.0.0.0', port: 5173, strictPort: true, allowedHosts: true } }\n",
}

with sandbox_with_registries() as created:
    for name, content in FILES.items():
        created.files.write(f"/tmp/site/{name}", content, parents=True)
    install(created, "cd /tmp/site && npm install --no-audit --no-fund --loglevel=error vite")
    passes(created, "npx vite build --logLevel warn", cwd="/tmp/site")
    assert "first text" in passes(created, "cat dist/assets/*.js", cwd="/tmp/site")
    server = created.start("exec npx vite --logLevel warn", cwd="/tmp/site")
    url = created.ports.expose(5173, visibility="public").url
    assert "/@vite/client" in get(url)
    assert "first text" in get(f"{url}/text.js")
    created.files.write("/tmp/site/text.js", "export const text = 'second text'\n")
    assert "second text" in get(f"{url}/text.js")
    server.cancel()
print("ok", flush=True)
