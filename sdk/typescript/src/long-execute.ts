/**
 * `execute` for any time limit. A command that may take longer than the service answers in one request runs detached, and its
 * output is followed; the result is the same.
 */

import { Effect } from "./call-progress.js";
import { cleanupStep } from "./cleanup.js";
import type { Command } from "./command-line.js";
import type { SandboxContext } from "./context.js";
import { networkError } from "./error-classes.js";
import { EXECUTE_OPTIONS, execute, isKilledOnAbort, recorded, timeoutOf } from "./execute.js";
import type { ExecuteOptions } from "./execute.js";
import { Execution, startCall, startedBy } from "./execution.js";
import type { Done, ExecutionResult } from "./models.js";
import { checkNames } from "./option-names.js";
import type { CommandDone } from "./output.js";
import { OutputBuffer } from "./output-buffer.js";

/** The longest time limit of a command whose result is the response. */
const LONGEST_ATTACHED_MS = 300_000;

/** Runs a command and returns its result. */
export function executeForAnyTime(context: SandboxContext, command: Command, options: ExecuteOptions): Promise<ExecutionResult> {
  checkNames(options, EXECUTE_OPTIONS);
  if ((timeoutOf(options) ?? 0) <= LONGEST_ATTACHED_MS) return execute(context, command, options);
  return recorded(context, command, options, () => detached(context, command, options));
}

async function detached(context: SandboxContext, command: Command, options: ExecuteOptions): Promise<ExecutionResult> {
  const { signal } = options;
  const effect = new Effect();
  const call = { ...startCall(context, command, options), effect };
  let execution: Execution | undefined;
  try {
    execution = await startedBy(context, call, options.runId);
    return await followed(execution, signal);
  } catch (error) {
    if (signal?.aborted === true && effect.isPossible && isKilledOnAbort(options)) {
      const known = execution;
      context.transport.cleanups.start("killing the command of an aborted call", async (limit) => {
        // A request with the same idempotency key returns the execution whose response the abort prevented.
        const started = known ?? (await startedBy(context, { ...call, ...cleanupStep(limit) }, options.runId));
        await context.transport.json({ method: "DELETE", path: started.path(), safety: "repeatable", ...cleanupStep(limit) });
      });
    }
    throw error;
  }
}

async function followed(execution: Execution, signal: AbortSignal | undefined): Promise<ExecutionResult> {
  const [stdout, stderr] = [new OutputBuffer(), new OutputBuffer()];
  const options = signal === undefined ? {} : { signal };
  for await (const output of execution.follow({ ...options, lineEnds: true })) {
    switch (output.type) {
      case "stdout":
        stdout.push(output.line);
        break;
      case "stderr":
        stderr.push(output.line);
        break;
      case "dropped":
        stdout.miss(output.stdoutBytes);
        stderr.miss(output.stderrBytes);
        break;
      case "done": {
        // As in the result of one request, standard error says why the command could not start.
        if (output.exitCode === null && output.signal === null) stderr.push((await execution.refresh(options)).message ?? "");
        const [out, err] = [stdout.result(), stderr.result()];
        return {
          stdout: out.text,
          stderr: err.text,
          ...endOf(output),
          ...(out.isTruncated ? { stdoutTruncated: true } : {}),
          ...(err.isTruncated ? { stderrTruncated: true } : {}),
        };
      }
    }
  }
  throw networkError("the output ended before the command did");
}

/** The end with all that the service says about it. */
function endOf(done: CommandDone): Done {
  const entries = Object.entries(done).filter(([name]) => name !== "type");
  return Object.fromEntries(entries) as unknown as Done;
}
