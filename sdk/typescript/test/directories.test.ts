/** Archives of local directories: round trips, hostile archives, and directories that change. */

import { execFileSync } from "node:child_process";
import {
  chmodSync, existsSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, readlinkSync, statSync, symlinkSync, truncateSync,
  utimesSync, writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { packDirectory } from "../src/platform/node-pack.js";
import { unpackDirectory } from "../src/platform/node-unpack.js";
import { headerBlocks, padding } from "../src/tar/header.js";
import type { EntryHeader } from "../src/tar/header.js";

function directory(): string {
  return mkdtempSync(join(tmpdir(), "sandboxd-directories-"));
}

/** Streams bytes in pieces of odd lengths. */
async function* pieces(bytes: Uint8Array, length = 700): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield await Promise.resolve(bytes.subarray(at, at + length));
}

async function bytesOf(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return Buffer.concat(all);
}

/** An archive with these entries, each with the content `evil` if it is a file. */
function archive(...entries: Partial<EntryHeader>[]): Uint8Array {
  const blocks = entries.flatMap((entry) => {
    const content = Buffer.from(entry.type === "file" ? "evil" : "");
    const header = { type: "file", name: "", link: "", mode: 0o4755, mtime: 1, size: content.length, ...entry } as const;
    return [...headerBlocks(header), content, new Uint8Array(padding(content.length))];
  });
  return Buffer.concat([...blocks, new Uint8Array(1024)]);
}

describe("a round trip", () => {
  test("keeps names, contents, links, modes and times", async () => {
    const [from, to] = [directory(), directory()];
    mkdirSync(join(from, "deep/er"), { recursive: true });
    writeFileSync(join(from, "deep/er/file"), "content", { mode: 0o750 });
    const long = `deep/${"x".repeat(200)}`;
    writeFileSync(join(from, long), "");
    const odd = Buffer.concat([Buffer.from(`${from}/deep/`), Buffer.from([0xff, 0xfe])]);
    writeFileSync(odd, "odd");
    utimesSync(odd, 1e9, 1e9);
    symlinkSync("er/file", join(from, "deep/link"));
    symlinkSync("y".repeat(200), join(from, "deep/far"));
    chmodSync(join(from, "deep/er"), 0o555);
    const unpacked = await unpackDirectory(packDirectory(from), to);
    expect(unpacked).toEqual({ path: to, files: 3, directories: 3, links: 2, skipped: 0, bytes: 10 });
    expect(readFileSync(join(to, "deep/link"), "utf8")).toBe("content");
    expect(readlinkSync(join(to, "deep/far"))).toBe("y".repeat(200));
    expect(statSync(join(to, "deep/er/file")).mode & 0o777).toBe(0o750);
    expect(statSync(join(to, "deep/er")).mode & 0o777).toBe(0o555);
    expect(existsSync(join(to, long))).toBe(true);
    const copy = Buffer.concat([Buffer.from(`${to}/deep/`), Buffer.from([0xff, 0xfe])]);
    expect(statSync(copy).mtimeMs).toBe(1e12);
  });

  test("exchanges archives with tar", async () => {
    const [from, to, back] = [directory(), directory(), directory()];
    mkdirSync(join(from, "d"));
    writeFileSync(join(from, `d/${"n".repeat(150)}`), "long");
    const packed = await bytesOf(packDirectory(from));
    execFileSync("tar", ["-x", "-C", to], { input: packed });
    expect(readFileSync(join(to, `d/${"n".repeat(150)}`), "utf8")).toBe("long");
    for (const format of ["gnu", "pax", "ustar", "v7"]) {
      const name = format === "v7" ? "short" : "n".repeat(99);
      writeFileSync(join(to, name), format);
      const made = execFileSync("tar", ["-c", `--format=${format}`, "-C", to, name]);
      await unpackDirectory(pieces(made), back);
      expect(readFileSync(join(back, name), "utf8")).toBe(format);
    }
  });

  test("a file that shrinks keeps its announced length, and vanished files are omitted", async () => {
    const [from, to] = [directory(), directory()];
    writeFileSync(join(from, "a"), "x".repeat(1000));
    const chunks: Uint8Array[] = [];
    for await (const chunk of packDirectory(from)) {
      chunks.push(chunk);
      if (Buffer.from(chunk).subarray(0, 2).toString() === "a\0") truncateSync(join(from, "a"), 300);
    }
    await unpackDirectory(pieces(Buffer.concat(chunks)), to);
    expect(readFileSync(join(to, "a"))).toEqual(Buffer.concat([Buffer.alloc(300, "x"), Buffer.alloc(700)]));
  });

  test("special files are omitted", async () => {
    const [from, to] = [directory(), directory()];
    execFileSync("mkfifo", [join(from, "fifo")]);
    expect(await unpackDirectory(packDirectory(from), to)).toMatchObject({ files: 0, skipped: 0 });
  });
});

describe("a hostile archive", () => {
  const outside = directory();
  const victim = join(outside, "victim");
  chmodSync(outside, 0o700);
  test.each([
    [[{ type: "file", name: "../../victim" }]],
    [[{ type: "symlink", name: "door", link: "../.." }, { type: "file", name: "door/victim" }]],
    [[{ type: "symlink", name: "way", link: outside }, { type: "file", name: "way/victim" }]],
    [[{ type: "symlink", name: "v", link: "../../victim" }, { type: "file", name: "v" }]],
    [[{ type: "hardlink", name: "hard", link: "../../victim" }, { type: "file", name: "hard" }]],
    [[{ type: "symlink", name: "d", link: "../.." }, { type: "directory", name: "d/new" }]],
    [[{ type: "symlink", name: "e", link: "../.." }, { type: "directory", name: "e" }]],
    [[{ type: "symlink", name: "s", link: "../../victim" }, { type: "hardlink", name: "t", link: "s" }, { type: "file", name: "t" }]],
    [[{ type: "directory", name: "g" }, { type: "symlink", name: "g", link: "../.." }, { type: "directory", name: "g/new" }]],
    [[{ type: "file", name: `${"p/".repeat(80)}../${"../".repeat(82)}victim` }]],
    [[{ type: "file", name: victim }]],
    [[{ type: "file", name: "nul\0/../../../victim".padEnd(150, "x") }]],
  ] as Partial<EntryHeader>[][][])("writes nothing outside: %j", async (entries) => {
    writeFileSync(victim, "good");
    const inside = join(outside, "in/side");
    mkdirSync(inside, { recursive: true });
    await unpackDirectory(pieces(archive(...entries)), inside).catch(() => undefined);
    expect(readFileSync(victim, "utf8")).toBe("good");
    expect(existsSync(join(outside, "new"))).toBe(false);
    expect(statSync(outside).mode & 0o7777).toBe(0o700);
    execFileSync("rm", ["-r", join(outside, "in")]);
  });

  test("set-user-id bits and devices are ignored, and a conflict does not affect other entries", async () => {
    const to = directory();
    symlinkSync(outside, join(to, "link"));
    const names = Array.from({ length: 6 }, (_, index) => ({ type: "file", name: `link/${index}` }) as const);
    const entries = archive({ type: "file", name: "before" }, { type: "other", name: "odd" }, ...names, { type: "file", name: "behind" });
    await expect(unpackDirectory(pieces(entries), to)).rejects.toThrow(/leads outside.*; and 1 more$/);
    expect(statSync(join(to, "before")).mode & 0o7777).toBe(0o755);
    expect(existsSync(join(to, "behind"))).toBe(true);
    expect(lstatSync(join(to, "link")).isSymbolicLink()).toBe(true);
  });

  test("is rejected if it is incomplete or damaged, or has long records", async () => {
    const good = archive({ type: "file", name: "a" });
    await expect(unpackDirectory(pieces(good.subarray(0, 700)), directory())).rejects.toThrow("incomplete");
    const damaged = Uint8Array.from(good);
    damaged[0] = 98;
    await expect(unpackDirectory(pieces(damaged), directory())).rejects.toThrow("checksum");
    const long = archive({ type: "file", name: "n".repeat(70_000) });
    await expect(unpackDirectory(pieces(long), directory())).rejects.toThrow("longer than 65536 bytes");
  });
});
