// Drives the MCP server with the official TypeScript clients: @modelcontextprotocol/sdk and its successor
// @modelcontextprotocol/client.
//
//     client.mjs sdk|client stdio|http legacy|2026-07-28
//
// The environment is that of client.py.

import assert from "node:assert/strict";

const [library, transportKind, mode] = process.argv.slice(2);
const { MCP_COMMAND, MCP_URL, SANDBOXD_API_KEY } = process.env;

async function classes() {
  if (library === "sdk") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    return { Client, StdioClientTransport, StreamableHTTPClientTransport };
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  return { Client, StdioClientTransport, StreamableHTTPClientTransport };
}

const { Client, StdioClientTransport, StreamableHTTPClientTransport } = await classes();
const transport =
  transportKind === "stdio"
    ? new StdioClientTransport({ command: MCP_COMMAND, args: ["mcp"], env: process.env })
    : new StreamableHTTPClientTransport(new URL(MCP_URL), {
        requestInit: { headers: { Authorization: `Bearer ${SANDBOXD_API_KEY}` } },
      });
const options = mode === "legacy" ? {} : { versionNegotiation: { mode: { pin: mode } } };
const client = new Client({ name: "test", version: "1.0.0" }, options);
await client.connect(transport);

const call = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result.content));
  return result.structuredContent;
};
const { tools } = await client.listTools();
assert.equal(tools.length, 10);
assert.equal(tools.find((tool) => tool.name === "read_file").annotations.readOnlyHint, true);
const place = {};
if (transportKind === "http" && mode !== "legacy") {
  place.sandboxId = (await call("create_sandbox", {})).sandboxId;
}
const ran = await call("run_command", { command: "echo hi", ...place });
assert.equal(ran.stdout, "hi\n");
await call("write_file", { path: "a.txt", content: "text", ...place });
assert.equal((await call("read_file", { path: "a.txt", ...place })).content, "text");
const failed = await client.callTool({ name: "read_file", arguments: { path: "missing", ...place } });
assert.ok(failed.isError && failed.content[0].text.includes("list_files"));
const parallel = await Promise.all(
  Array.from({ length: 100 }, (_, number) => call("list_files", { path: "/", limit: 1 + (number % 5), ...place })),
);
assert.ok(parallel.every((listed, number) => listed.entries.length === 1 + (number % 5)));
const ended = await call("manage_sandboxes", { action: "terminate", ...place });
assert.equal(ended.terminated, true);
if (transportKind === "http" && mode === "legacy") {
  await transport.terminateSession();
}
await client.close();
console.log(`ok: ${library} ${transportKind} ${mode}`);
