/** Build contexts: the patterns of `.dockerignore`, and which entries of a directory are packed. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { Dockerignore } from "../src/dockerignore.js";
import { packContext } from "../src/platform/node-context.js";
import { packDirectory } from "../src/platform/node-pack.js";

/** The paths of these that a file leaves out. */
function excluded(text: string, ...paths: string[]): string[] {
  const ignore = new Dockerignore(text);
  return paths.filter((path) => ignore.excludes(path));
}

describe("a pattern", () => {
  test.each([
    ["file", ["file", "file/below"], ["dir/file", "files"]],
    ["/dir/", ["dir", "dir/a/b"], ["a/dir"]],
    ["./a/../b//c", ["b/c"], ["a", "c"]],
    ["../up", [], ["up", "../x"]],
    ["/", [], ["a"]],
    ["*.md", ["a.md", ".md"], ["dir/a.md", "a.mdx"]],
    ["*/*.md", ["dir/a.md"], ["a.md", "a/b/c.md"]],
    ["a?c", ["abc", "a☺c"], ["a/c", "ac"]],
    ["[a-c]x", ["ax", "cx"], ["dx", "-x"]],
    ["[^a-c]x", ["dx"], ["ax"]],
    ["[\\]\\-]x", ["]x", "-x"], ["\\x"]],
    ["a.b+(c)$", ["a.b+(c)$"], ["aXb+(c)$"]],
    ["a\\*b", ["a*b"], ["axb"]],
    ["**", ["a", "a/b"], []],
    ["**/b", ["b", "a/b", "a/a/b", "b/c"], ["ab"]],
    ["**.log", [".log", "a.log", "a/b.log"], ["a.logs"]],
    ["**/*.log", ["a.log", "a/b.log"], ["a"]],
    ["a/**", ["a/b", "a/b/c"], ["a"]],
    ["a/**/z", ["a/z", "a/b/c/z"], ["az", "b/z"]],
  ])("%s", (pattern, matched, others) => {
    expect(excluded(pattern, ...matched, ...others)).toEqual(matched);
  });

  test("with an error is refused with its line", () => {
    for (const pattern of ["[", "[]", "[z-a]", "a\\", "!", "! "]) {
      expect(() => new Dockerignore(`ok\n\n${pattern}`)).toThrow(/^\.dockerignore, line 3: /);
    }
  });
});

test("comments, blank lines, a byte order mark and line ends do not count", () => {
  const text = "\ufeff# a\r\n\r\n  b  \r\n #c\r\n";
  expect(excluded(text, "a", "b", "#c", "# a")).toEqual(["b", "#c"]);
});

test("the last pattern that matches a path or a directory above it decides", () => {
  const text = "docs\n!docs/*.md\ndocs/secret.md\n!docs/deep/keep";
  const paths = ["docs", "docs/a.md", "docs/secret.md", "docs/a.txt", "docs/deep/keep/x", "docs/deep/other"];
  expect(excluded(text, ...paths)).toEqual(["docs", "docs/secret.md", "docs/a.txt", "docs/deep/other"]);
  expect(excluded("!a\na", "a")).toEqual(["a"]);
});

test("an excluded directory is searched only if an exception may include something below it", () => {
  const ignore = new Dockerignore("*\n!src/app\n!docs/*/x");
  ignore.keep("./build/Dockerfile");
  for (const directory of ["src", "docs", "docs/a", "build"]) expect([directory, ignore.mayIncludeBelow(directory)]).toEqual([directory, true]);
  for (const directory of ["node_modules", "src/other", "build/a"]) {
    expect([directory, ignore.mayIncludeBelow(directory)]).toEqual([directory, false]);
  }
  expect(new Dockerignore("*\n!**/x").mayIncludeBelow("a")).toBe(true);
  expect(ignore.excludes("build/Dockerfile")).toBe(false);
});

/** The names in the archive of a context, as tar lists them. */
async function packed(files: Record<string, string>, dockerfile?: string): Promise<string[]> {
  const directory = mkdtempSync(join(tmpdir(), "sandboxd-context-"));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), text);
  }
  symlinkSync("a", join(directory, "link"));
  const chunks: Uint8Array[] = [];
  for await (const chunk of packContext(directory, dockerfile)) chunks.push(chunk);
  return execFileSync("tar", ["-t", "--quoting-style=literal"], { input: Buffer.concat(chunks), encoding: "utf8" }).trim().split("\n").sort();
}

test("without the file everything is packed", async () => {
  expect(await packed({ a: "", "b/c": "", ".env": "" })).toEqual(["./", ".env", "a", "b/", "b/c", "link"]);
});

test("excluded entries are not packed, with the directories of the others before them", async () => {
  const ignore = "**\n!ü\n!deep/er/keep\n.dockerignore";
  const files = { ".dockerignore": ignore, Dockerfile: "", ü: "", "deep/er/keep": "", "deep/er/other": "", "deep/x": "" };
  expect(await packed(files, "Dockerfile")).toEqual(["./", "Dockerfile", "deep/", "deep/er/", "deep/er/keep", "ü"]);
  const names = await packed({ ".dockerignore": "docker", "docker/File": "", "docker/other": "" }, "./docker/File");
  expect(names).toEqual(["./", ".dockerignore", "docker/", "docker/File", "link"]);
});

test("an excluded directory is not read unless something below it may be included", async () => {
  const directory = mkdtempSync(join(tmpdir(), "sandboxd-context-"));
  mkdirSync(join(directory, "a/b"), { recursive: true });
  const asked: string[] = [];
  const includes = (name: string): boolean => {
    asked.push(name);
    return false;
  };
  for (const searched of ["", "a"]) {
    const chunks = packDirectory(directory, { includes, mayIncludeBelow: (name) => name === searched });
    while ((await chunks.next()).done !== true);
  }
  expect(asked).toEqual(["a", "a", "a/b"]);
});

test("a file that cannot be read is an error", async () => {
  const directory = mkdtempSync(join(tmpdir(), "sandboxd-context-"));
  mkdirSync(join(directory, ".dockerignore"));
  await expect(packContext(directory).next()).rejects.toMatchObject({ code: "EISDIR" });
});
