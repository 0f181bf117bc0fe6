/** Commands that are lists. */

import { execFileSync } from "node:child_process";
import { InvalidArgument } from "sandboxd";
import { expect, test } from "vitest";
import { commandLine } from "../src/command-line.js";
import type { Command } from "../src/command-line.js";
import { events, json, RESULT, Service, VIEW } from "./service.js";

/** The words that bash makes of a command line. */
function wordsOf(line: string): string[] {
  const output = execFileSync("bash", ["-c", `printf '%s\\0' ${line}`], { encoding: "utf8" });
  return output.split("\0").slice(0, -1);
}

test("a text is a command line, and plain words need no quotes", () => {
  expect(commandLine("echo $HOME | wc")).toBe("echo $HOME | wc");
  expect(commandLine(["ls", "-l", "/tmp/a.b:c@d,e_f+g"])).toBe("ls -l /tmp/a.b:c@d,e_f+g");
  expect(commandLine(["echo", "a b", "it's", "", "$HOME"])).toBe(`echo 'a b' 'it'\\''s' '' '$HOME'`);
});

test("bash gets the words as they are", () => {
  const characters = " \t\n'\"`$\\!*?[]{}()<>|&;#~^=%-+.,:/@aZ0ü😀";
  const each = Array.from(characters);
  const words = [...each, "~root", "A=1", "{a,b}", "$(id)", "a\nb", "'", "''", "\\'", "!!", "%1", "time", "if", ""];
  for (let seed = 1; seed < 60; seed++) {
    words.push(Array.from({ length: 12 }, (_, index) => each[(seed * (index + 7) * 31) % each.length]).join(""));
  }
  expect(wordsOf(commandLine(words))).toEqual(words);
});

test("the first word is a program, whatever it means to bash", () => {
  for (const word of ["time", "if", "[[", "{", "!", "A=1", "%1"]) {
    expect(commandLine([word, "x"])).toBe(`'${word}' x`);
  }
});

test.each([[[]], [["echo", 1]], [["echo", "a\0b"]], [[undefined]], [17], [{ 0: "ls", length: 1 }]])("%j is not a command", (command) => {
  expect(() => commandLine(command as unknown as Command)).toThrow(InvalidArgument);
});

test("lists are commands of all methods", async () => {
  await using service = await Service.start((request, response) => {
    const done = events('event: done\ndata: {"exitCode":0,"signal":null,"durationMs":5}\n\n');
    return (request.headers.accept === "text/event-stream" ? done : json(200, { ...RESULT, executionId: "ex_1" }))(request, response);
  });
  const sandbox = service.client({ retries: 0 }).sandboxes.connect(VIEW.id);
  const command = ["echo", "a b"] as const;
  await sandbox.execute(command);
  await sandbox.start(command);
  await sandbox.stream(command).done();
  await sandbox.terminal({ command }).catch(() => undefined);
  const commands = service.received.flatMap(({ body }) => (body === "" ? [] : [(JSON.parse(body) as { command: string }).command]));
  expect(commands).toEqual(Array(4).fill("echo 'a b'"));
  await expect(sandbox.execute([])).rejects.toBeInstanceOf(InvalidArgument);
  expect(() => sandbox.stream([])).toThrow(InvalidArgument);
});
