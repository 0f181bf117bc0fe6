/** Unpacks archives into local directories. The archives come from sandboxes and are treated as hostile. */

import { Buffer } from "node:buffer";
import { constants } from "node:fs";
import { chmod, link, lstat, mkdir, open, realpath, rm, symlink, utimes } from "node:fs/promises";
import type { Unpacked } from "../models.js";
import { messageOf } from "../errors.js";
import { ArchiveError } from "../tar/header.js";
import type { EntryHeader } from "../tar/header.js";
import { archiveEntries } from "../tar/reader.js";
import type { ArchiveEntry } from "../tar/reader.js";

/** Failures that are reported individually. */
const MOST_FAULTS = 5;
/** Limits memory, because the archive may contain any number of directories. */
const MOST_DIRECTORIES = 100_000;

/** The last second of the year 9999. Later times do not fit into every file system. */
const LATEST = 253_402_300_799;

/** Counts of a directory that was unpacked. */
type Tally = { -readonly [Key in keyof Unpacked]: Unpacked[Key] };

/**
 * Unpacks an archive below a directory. Nothing is written outside of it, also not through symbolic links; devices, FIFOs and
 * sockets are omitted; owners and set-user-id bits are ignored. Entries that cannot be created are skipped and reported as an
 * error at the end.
 */
export async function unpackDirectory(source: AsyncIterable<Uint8Array>, directory: string): Promise<Unpacked> {
  await mkdir(directory, { recursive: true });
  const unpacker = new Unpacker(await realpath(Buffer.from(directory), "buffer"), directory);
  for await (const entry of archiveEntries(source)) await unpacker.add(entry);
  return unpacker.finish();
}

class Unpacker {
  readonly #root: Buffer;
  readonly #tally: Tally;
  readonly #faults: string[] = [];
  #otherFaults = 0;
  /** Directories get their mode and time last: a read-only one would prevent entries in it. */
  readonly #directories: { path: Buffer; header: EntryHeader }[] = [];

  constructor(root: Buffer, path: string) {
    this.#root = root;
    this.#tally = { path, files: 0, directories: 0, links: 0, skipped: 0, bytes: 0 };
  }

  async add(entry: ArchiveEntry): Promise<void> {
    const parts = partsOf(entry.header.name);
    if (parts === undefined || entry.header.type === "other") {
      this.#tally.skipped += 1;
      return;
    }
    try {
      await this.#create(entry, parts);
    } catch (error) {
      // A failure of the archive or its source ends everything; one of the file system concerns this entry.
      if (error instanceof ArchiveError || (error as NodeJS.ErrnoException).syscall === undefined) throw error;
      this.#fault(entry.header.name, error);
    }
  }

  async finish(): Promise<Unpacked> {
    for (const { path, header } of this.#directories.reverse()) {
      try {
        const time = timeOf(header);
        await utimes(path, time, time);
        await chmod(path, header.mode);
      } catch (error) {
        this.#fault(header.name, error);
      }
    }
    if (this.#faults.length === 0) return this.#tally;
    const more = this.#otherFaults === 0 ? [] : [`and ${this.#otherFaults} more`];
    throw new Error([...this.#faults, ...more].join("; "));
  }

  async #create(entry: ArchiveEntry, parts: string[]): Promise<void> {
    const { header } = entry;
    const last = parts.pop();
    if (last === undefined) {
      // The directory itself, which keeps its mode.
      this.#tally.directories += 1;
      return;
    }
    const parent = await this.#directory(parts);
    const path = joined(parent, last);
    switch (header.type) {
      case "directory":
        await makeDirectory(path);
        this.#keepForLater(path, header);
        this.#tally.directories += 1;
        return;
      case "file":
        await this.#write(path, entry);
        this.#tally.files += 1;
        return;
      case "symlink":
        await removeFile(path);
        await symlink(Buffer.from(header.link, "latin1"), path);
        break;
      default:
        await this.#hardLink(path, header.link);
    }
    this.#tally.links += 1;
  }

  async #write(path: Buffer, entry: ArchiveEntry): Promise<void> {
    await removeFile(path);
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    const file = await open(path, flags, 0o600);
    try {
      for await (const piece of entry.content()) await file.writeFile(piece);
      await file.chmod(entry.header.mode);
      const time = timeOf(entry.header);
      await file.utimes(time, time);
    } finally {
      await file.close();
    }
    this.#tally.bytes += entry.header.size;
  }

  async #hardLink(path: Buffer, target: string): Promise<void> {
    const parts = partsOf(target);
    const last = parts?.pop();
    if (parts === undefined || last === undefined) throw outside(target);
    const existing = joined(await this.#directory(parts), last);
    await removeFile(path);
    await link(existing, path);
  }

  /** A directory below the root, created if it does not exist. Symbolic links on the way may not lead outside. */
  async #directory(parts: readonly string[]): Promise<Buffer> {
    let path = this.#root;
    for (const part of parts) {
      const next = joined(path, part);
      const found = await lstat(next).catch(() => undefined);
      if (found === undefined) await mkdir(next);
      path = found?.isSymbolicLink() === true ? await realpath(next, "buffer") : next;
      if (found?.isSymbolicLink() === true && !this.#isBelowRoot(path)) throw outside(part);
    }
    return path;
  }

  #isBelowRoot(path: Buffer): boolean {
    const prefix = this.#root.at(-1) === 47 ? this.#root : Buffer.concat([this.#root, Buffer.from("/")]);
    return path.equals(this.#root) || path.subarray(0, prefix.length).equals(prefix);
  }

  #keepForLater(path: Buffer, header: EntryHeader): void {
    if (this.#directories.length === MOST_DIRECTORIES) {
      throw new ArchiveError(`the archive has more than ${MOST_DIRECTORIES} directories`);
    }
    this.#directories.push({ path, header });
  }

  #fault(name: string, error: unknown): void {
    if (this.#faults.length === MOST_FAULTS) this.#otherFaults += 1;
    else this.#faults.push(`${Buffer.from(name, "latin1").toString()}: ${messageOf(error)}`);
  }
}

function timeOf({ mtime }: EntryHeader): number {
  return Math.min(mtime, LATEST);
}

/** The components of a name, or `undefined` if it leads outside. A leading slash is ignored. */
function partsOf(name: string): string[] | undefined {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  return parts.includes("..") || name.includes("\0") ? undefined : parts;
}

function joined(directory: Buffer, name: string): Buffer {
  return Buffer.concat([directory, Buffer.from("/"), Buffer.from(name, "latin1")]);
}

async function makeDirectory(path: Buffer): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found?.isDirectory() === true) return;
  await mkdir(path);
}

/** A file in the way is replaced, never followed or written through. */
async function removeFile(path: Buffer): Promise<void> {
  await rm(path, { force: true });
}

function outside(name: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${name} leads outside the directory`), { syscall: "open" });
}
