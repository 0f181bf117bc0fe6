/** Commands as the methods take them: a bash command line, or a program with its arguments. */

import { argumentError } from "./error-classes.js";

/** A bash command line, or a list of a program and its arguments, which bash takes as they are. */
export type Command = string | readonly string[];

/** Words that have no meaning to bash. Others are quoted. */
const PLAIN = /^[A-Za-z0-9_@:,./+-]+$/;
/** Words that begin a part of bash's syntax if they are not quoted. */
const RESERVED = new Set(
  "case coproc do done elif else esac fi for function if in select then time until while".split(" "),
);

/** The command line of a command. Throws an {@link InvalidArgument} for a list that bash cannot run. */
export function commandLine(command: Command): string {
  if (typeof command === "string") return command;
  if (!Array.isArray(command)) throw invalid("is neither a text nor a list of texts");
  if (command.length === 0) throw invalid("is an empty list; the first word is the program");
  return command.map(quoted).join(" ");
}

/** Programs without types may pass anything, so the words are checked. */
function quoted(word: unknown, index: number): string {
  if (typeof word !== "string") throw invalid(`has the value ${String(word)} at position ${index}; every word is a text`);
  if (word.includes("\0")) throw invalid(`has a null character at position ${index}, which no argument can contain`);
  if (PLAIN.test(word) && !RESERVED.has(word)) return word;
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

function invalid(why: string): Error {
  return argumentError("command", `the command ${why}`);
}
