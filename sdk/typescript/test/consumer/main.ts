/** A program that uses the SDK, compiled by package.test.ts as a project of its own. Each `@ts-expect-error` is a typing error. */

import { CommandFailed, Sandbox, Sandboxd, SandboxdError } from "sandboxd";
import type { AnySandboxdError, CreateOptions, Duration, ExecutionResult, Output, SandboxItem, Size } from "sandboxd";

export async function main(signal: AbortSignal): Promise<void> {
  using client = new Sandboxd({ timeout: "60s", log: (message) => { console.log(message); } });
  const memory: Size = "4g";
  const timeout: Duration = "1h30m";
  const options: CreateOptions = { memory, timeout, egress: { default: "deny", allow: ["example.com"] }, signal };
  await using sandbox: Sandbox = await client.sandboxes.create("ubuntu:24.04", options);
  const result: ExecutionResult = await sandbox.execute(["echo", "a b"] as const, { timeout: "10m" });
  if (result.reason === "oom") console.log(result.exitCode ?? result.signal);
  for await (const output of sandbox.stream("true")) show(output);
  const items: SandboxItem[] = await client.sandboxes.list({ state: "all" }).toArray();
  console.log(items.length, (await sandbox.files.stream("f")).toWebStream());
  const execution = await sandbox.start("make", { openStdin: true });
  try {
    console.log((await execution.wait({ check: true })).exitCode);
  } catch (error) {
    if (error instanceof CommandFailed) console.log(error.stderrTail);
    else if (error instanceof SandboxdError) console.log(codeOf(error as AnySandboxdError));
  }
}

function show(output: Output): void {
  if (output.type === "done") console.log(output.exitCode, output.reason);
}

function codeOf(error: AnySandboxdError): string {
  return error.code === "BUILD_FAILED" ? error.template.name : error.code;
}

export async function mistakes(client: Sandboxd, sandbox: Sandbox): Promise<void> {
  // @ts-expect-error -- `apiKey`
  new Sandboxd({ apikey: "" });
  // @ts-expect-error -- `egress`
  await Sandbox.create("i", { egres: { default: "deny" } });
  // @ts-expect-error -- `default`
  await Sandbox.create("i", { egress: { defualt: "deny" } });
  // @ts-expect-error -- `allow`
  await client.sandboxes.create("i", { egress: { default: "deny", alow: ["example.com"] } });
  // @ts-expect-error -- `allowPorts`
  await client.sandboxes.create("i", { ingress: { allowPort: [80] } });
  // @ts-expect-error -- the SDK has no `network` around the policies
  await client.sandboxes.create("i", { network: { egress: { default: "deny" } } });
  // @ts-expect-error -- a number of vCPUs that does not exist
  await client.sandboxes.create("i", { cpu: 3 });
  // @ts-expect-error -- a unit that does not exist
  await client.sandboxes.create("i", { memory: "4gigs" });
  // @ts-expect-error -- a unit that does not exist
  await client.sandboxes.create("i", { timeout: "90 minutes" });
  // @ts-expect-error -- `default`
  await sandbox.network.update({ deafult: "deny" });
  // @ts-expect-error -- `timeoutMs`
  await sandbox.execute("true", { timeoutMS: 1 });
  // @ts-expect-error -- a command is a text or a list of texts
  await sandbox.execute(["sleep", 1]);
  // @ts-expect-error -- `metadata`
  await sandbox.fork({ count: 1, metdata: {} });
  // @ts-expect-error -- `allowNetworks`
  await client.templates.start("t", { dockerfile: "FROM i", egress: { allowNetwork: [] } });
  // @ts-expect-error -- the connection is private
  console.log(sandbox.context);
}
