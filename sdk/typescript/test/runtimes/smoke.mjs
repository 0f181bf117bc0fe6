/** What a program does first, without anything of one runtime. Run by `./dev runtimes` on Bun, Deno and in a browser. */

import { FileNotFound, Sandbox, Sandboxd } from "../../dist/index.js";

/** Uses a service and returns the steps that worked. `features.websockets` is false where the runtime cannot trust it. */
export async function smoke(options, features) {
  const client = new Sandboxd(options);
  const steps = [];
  const sandbox = await client.sandboxes.create("ubuntu:24.04", { env: { NAME: "smoke" } });
  try {
    expect("execute", steps, (await sandbox.execute("echo $NAME")).stdout, "smoke\n");
    const lines = [];
    for await (const output of sandbox.stream("seq 3")) if (output.type === "stdout") lines.push(output.line);
    expect("stream", steps, lines.join(), "1,2,3");
    await sandbox.files.write("a/b", "text", { parents: true });
    expect("files", steps, await sandbox.files.readText("a/b"), "text");
    const missing = await sandbox.files.read("none").catch((error) => error);
    expect("errors", steps, missing instanceof FileNotFound, true);
    const signal = AbortSignal.timeout(300);
    const aborted = await sandbox.execute("sleep 1000", { signal }).catch((error) => error);
    expect("abort", steps, aborted.name, "TimeoutError");
    const execution = await sandbox.start("for i in 1 2 3; do echo $i; done");
    let followed = "";
    for await (const output of execution.follow()) if (output.type === "stdout") followed += output.line;
    expect("follow", steps, followed, "123");
    if (features.directories) {
      const context = await client.templates.uploadContext(features.directories);
      expect("contexts", steps, context.sizeBytes > 0, true);
      expect("directories", steps, (await sandbox.files.uploadDirectory(features.directories, "copy")).files > 0, true);
    }
    if (features.websockets) expect("terminal", steps, await terminal(sandbox), true);
  } finally {
    await sandbox.terminate();
  }
  const gone = await sandbox.refresh().catch((error) => error.code);
  expect("terminate", steps, gone, "SANDBOX_NOT_FOUND");
  expect("class", steps, sandbox instanceof Sandbox, true);
  return steps;
}

async function terminal(sandbox) {
  const shell = await sandbox.terminal();
  shell.send("echo $((6*7)); exit\r");
  let text = "";
  for await (const event of shell) if (event.type === "bytes") text += new TextDecoder().decode(event.bytes);
  return text.includes("42");
}

function expect(step, steps, got, wanted) {
  if (got !== wanted) throw new Error(`${step}: ${JSON.stringify(got)} instead of ${JSON.stringify(wanted)}`);
  steps.push(step);
}
