/** Runs the smoke test in a headless Chromium. The browser trusts any certificate. */

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import process from "node:process";

const { SANDBOXD_URL: url, SANDBOXD_API_KEY: apiKey } = process.env;
const root = new URL("../..", import.meta.url).pathname;
const PAGE = `<!doctype html>
<script type="importmap">{"imports": {"#platform": "/dist/platform/browser.js"}}</script>
<script type="module">
  const done = (text) => fetch("/done", { method: "POST", body: text });
  try {
    const { smoke } = await import("/test/runtimes/smoke.mjs");
    const steps = await smoke(${JSON.stringify({ url, apiKey })}, { websockets: true });
    await done("passed: " + steps.join(" "));
  } catch (error) {
    await done("failed: " + error + " " + error?.stack);
  }
</script>`;

const result = await new Promise((resolve, reject) => {
  const server = http.createServer((request, response) => {
    if (request.method === "POST") {
      let text = "";
      request.on("data", (chunk) => (text += chunk));
      request.on("end", () => {
        response.end();
        server.close();
        server.closeAllConnections();
        resolve(text);
      });
    } else if (request.url === "/") {
      response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
    } else {
      try {
        const script = readFileSync(join(root, normalize(request.url)));
        response.writeHead(200, { "content-type": "text/javascript" }).end(script);
      } catch {
        response.writeHead(404).end();
      }
    }
  });
  server.listen(0, "127.0.0.1", () => {
    const profile = mkdtempSync(join(tmpdir(), "sandboxd-browser-"));
    const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--ignore-certificate-errors", `--user-data-dir=${profile}`];
    const page = `http://127.0.0.1:${server.address().port}/`;
    const browser = spawn("chromium", [...flags, page], { stdio: ["ignore", "ignore", "inherit"] });
    browser.on("error", reject);
    const limit = setTimeout(() => reject(new Error("the page did not finish in time")), 60_000);
    server.on("close", () => {
      clearTimeout(limit);
      browser.on("exit", () => rmSync(profile, { recursive: true, force: true }));
      browser.kill("SIGKILL");
    });
  });
}).catch((error) => `failed: ${error}`);
console.log(result);
process.exit(result.startsWith("passed") ? 0 : 1);
