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

/** Which entries are packed. Names are relative to the directory, with one character per byte. */
export interface Selection {
  includes(name: string): boolean;
  /** Whether an entry below a directory that is not included may be included. */
  mayIncludeBelow(directory: string): boolean;
}

const EVERYTHING: Selection = { includes: () => true, mayIncludeBelow: () => true };

/** Writes a directory as an archive with relative names. Omits sockets, FIFOs and devices. */
export async function* packDirectory(directory: string, selection = EVERYTHING): AsyncGenerator<Uint8Array, void> {
  const root = Buffer.from(directory);
  // Fails before the first header if the path is not a directory.
  const waiting = await entriesOf(root, "");
  yield* headerBlocks(headerOf(await stat(root), "directory", "./"));
  const packer = new Packer(root, selection, waiting);
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    yield* packer.packed(name);
  }
  yield new Uint8Array(2 * BLOCK);
}

class Packer {
  readonly #root: Buffer;
  readonly #selection: Selection;
  /** The names of the entries that were found and not yet packed. */
  readonly #waiting: string[];
  /** The headers of directories that are packed only with an entry below them, by name. */
  readonly #pending = new Map<string, EntryHeader>();

  constructor(root: Buffer, selection: Selection, waiting: string[]) {
    this.#root = root;
    this.#selection = selection;
    this.#waiting = waiting;
  }

  async *packed(name: string): AsyncGenerator<Uint8Array, void> {
    const isIncluded = this.#selection.includes(name);
    if (!isIncluded && !this.#selection.mayIncludeBelow(name)) return;
    const path = Buffer.concat([this.#root, Buffer.from("/"), Buffer.from(name, "latin1")]);
    const found = await unlessMissing(lstat(path));
    if (found?.isDirectory() === true) {
      const below = await unlessMissing(entriesOf(path, `${name}/`));
      if (below === undefined) return;
      for (const each of below) this.#waiting.push(each);
      const header = headerOf(found, "directory", `${name}/`);
      if (isIncluded) yield* this.#headers(name, header);
      else this.#pending.set(name, header);
    } else if (!isIncluded) {
      return;
    } else if (found?.isSymbolicLink() === true) {
      const link = await unlessMissing(readlink(path, { encoding: "buffer" }));
      if (link !== undefined) yield* this.#headers(name, headerOf(found, "symlink", name, byteText(link)));
    } else if (found?.isFile() === true) {
      const file = await unlessMissing(open(path));
      if (file === undefined) return;
      try {
        yield* this.#file(file, name);
      } finally {
        await file.close();
      }
    }
  }

  /** Uses the metadata of the open file, because the name may have been reused. */
  async *#file(file: FileHandle, name: string): AsyncGenerator<Uint8Array, void> {
    const found = await file.stat();
    if (!found.isFile()) return;
    yield* this.#headers(name, headerOf(found, "file", name));
    yield* contentOf(file, found.size);
  }

  /** The header of an entry, after those of the pending directories above it. */
  *#headers(name: string, header: EntryHeader): Generator<Uint8Array, void> {
    for (let slash = name.indexOf("/"); this.#pending.size > 0 && slash >= 0; slash = name.indexOf("/", slash + 1)) {
      const above = name.slice(0, slash);
      const pending = this.#pending.get(above);
      if (pending !== undefined) yield* headerBlocks(pending);
      this.#pending.delete(above);
    }
    yield* headerBlocks(header);
  }
}

async function* contentOf(file: FileHandle, size: number): AsyncGenerator<Uint8Array, void> {
  let left = size;
  while (left > 0) {
    const piece = new Uint8Array(Math.min(left, PIECE_BYTES));
    const { bytesRead } = await file.read(piece, 0, piece.length);
    // A file that shrank is filled with zeros.
    const length = bytesRead === 0 ? piece.length : bytesRead;
    yield piece.subarray(0, length);
    left -= length;
  }
  yield new Uint8Array(padding(size));
}

function headerOf(found: Stats, type: EntryType, name: string, link = ""): EntryHeader {
  return { type, name, link, mode: found.mode, mtime: found.mtimeMs / 1000, size: type === "file" ? found.size : 0 };
}

async function entriesOf(path: Buffer, prefix: string): Promise<string[]> {
  const names = await readdir(path, { encoding: "buffer" });
  return names.map((name) => `${prefix}${byteText(name)}`);
}

/** `undefined` if the entry or its directory vanished meanwhile. */
export async function unlessMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw error;
  }
}
