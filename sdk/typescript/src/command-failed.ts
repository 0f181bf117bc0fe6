/** The error of a command that had to succeed. */

import type { BuildFailed, CodeError } from "./error-classes.js";
import { SandboxdError } from "./errors.js";
import type { ExecutionResult } from "./models.js";

const TAIL_LINES = 20;
const TAIL_CHARACTERS = 2000;

/**
 * A command that was run with `check` did not exit with 0. The message has the end of its standard error, and `result` the output
 * and the exit code.
 */
export class CommandFailed extends SandboxdError {
  declare readonly code: "COMMAND_FAILED";
  /** The result of the command. That of a detached command has only the last part of its output. */
  readonly result: ExecutionResult;
  /** The last lines of standard error. */
  readonly stderrTail: string;

  /** Makes the error for the result of a command; `command` is its text, shortened. */
  constructor(command: string, result: ExecutionResult) {
    const stderrTail = tailOf(result.stderr);
    const message = `${endOf(result)}: ${command}${stderrTail === "" ? "" : `\n${stderrTail}`}`;
    super("COMMAND_FAILED", message, { details: { ...result } });
    this.result = result;
    this.stderrTail = stderrTail;
  }
}

/** Any error of the SDK, discriminated by `code`. */
export type AnySandboxdError = CodeError | CommandFailed | BuildFailed;

/** The last lines of a text. */
export function tailOf(text: string): string {
  const lines = text.trimEnd().split("\n").slice(-TAIL_LINES).join("\n");
  return lines.length > TAIL_CHARACTERS ? `…${lines.slice(-TAIL_CHARACTERS)}` : lines;
}

/** How the command ended, with what the service says about it if it did not end by itself. */
function endOf({ exitCode, signal, message }: ExecutionResult): string {
  const end = exitCode === null ? `ended by ${signal ?? "an error"}` : `exit code ${exitCode}`;
  return message === undefined ? end : `${end} (${message})`;
}
