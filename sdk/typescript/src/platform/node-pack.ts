/**
 * Packs a local directory while others may change it: each file has the length that its header announced, and files that
 * vanish are omitted.
 */

import type { Stats } from "node:fs";
import { lstat, open, readdir, readlink, stat } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { Buffer } from "node:buffer";
import { BLOCK, byteText, headerBlocks, padding } from "../tar/header.js";
import type { EntryHeader, EntryType } from "../tar/header.js";

const PIECE_BYTES = 256 * 1024;

/** Writes a directory as an archive with relative names. Omits sockets, FIFOs and devices. */
export async function* packDirectory(directory: string): AsyncGenerator<Uint8Array, void> {
  const root = Buffer.from(directory);
  // Fails before the first header if the path is not a directory.
  const waiting = await entriesOf(root, "");
  yield* headerBlocks(headerOf(await stat(root), "directory", "./"));
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    yield* packed(root, name, waiting);
  }
  yield new Uint8Array(2 * BLOCK);
}

async function* packed(root: Buffer, name: string, waiting: string[]): AsyncGenerator<Uint8Array, void> {
  const path = Buffer.concat([root, Buffer.from("/"), Buffer.from(name, "latin1")]);
  const found = await unlessMissing(lstat(path));
  if (found?.isDirectory() === true) {
    const below = await unlessMissing(entriesOf(path, `${name}/`));
    if (below === undefined) return;
    waiting.push(...below);
    yield* headerBlocks(headerOf(found, "directory", `${name}/`));
  } else if (found?.isSymbolicLink() === true) {
    const link = await unlessMissing(readlink(path, { encoding: "buffer" }));
    if (link !== undefined) yield* headerBlocks(headerOf(found, "symlink", name, byteText(link)));
  } else if (found?.isFile() === true) {
    const file = await unlessMissing(open(path));
    if (file === undefined) return;
    try {
      yield* packedFile(file, name);
    } finally {
      await file.close();
    }
  }
}

/** Uses the metadata of the open file, because the name may have been reused. */
async function* packedFile(file: FileHandle, name: string): AsyncGenerator<Uint8Array, void> {
  const found = await file.stat();
  if (!found.isFile()) return;
  yield* headerBlocks(headerOf(found, "file", name));
  let left = found.size;
  while (left > 0) {
    const piece = new Uint8Array(Math.min(left, PIECE_BYTES));
    const { bytesRead } = await file.read(piece, 0, piece.length);
    // A file that shrank is filled with zeros.
    const length = bytesRead === 0 ? piece.length : bytesRead;
    yield piece.subarray(0, length);
    left -= length;
  }
  yield new Uint8Array(padding(found.size));
}

function headerOf(found: Stats, type: EntryType, name: string, link = ""): EntryHeader {
  return { type, name, link, mode: found.mode, mtime: found.mtimeMs / 1000, size: type === "file" ? found.size : 0 };
}

async function entriesOf(path: Buffer, prefix: string): Promise<string[]> {
  const names = await readdir(path, { encoding: "buffer" });
  return names.map((name) => `${prefix}${byteText(name)}`);
}

/** `undefined` if the entry or its directory vanished meanwhile. */
async function unlessMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw error;
  }
}
