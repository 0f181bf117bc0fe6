/** Files of a sandbox, accessed as its root user. Contents are streamed, and directories are listed in pages. */

import { platform } from "#platform";
import type { StreamedResponse } from "./attempt.js";
import { queryString } from "./context.js";
import type { Query, ResumingOptions, SandboxContext } from "./context.js";
import { Described } from "./described.js";
import { configurationError, errorOf } from "./error-classes.js";
import { messageOf, SandboxdError } from "./errors.js";
import { FileStream } from "./file-stream.js";
import type { EventKind, FileDeleted, FileEntry, FileExistence, Unpacked } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { LARGEST_PAGE, PagedList } from "./paging.js";
import { contentPayload, streamPayload } from "./payload.js";
import type { Content, Payload } from "./payload.js";
import type { Directories } from "./platform/types.js";
import type { Call } from "./transport.js";
import { FileWatch } from "./watch.js";

const TAR = "application/x-tar";

/**
 * A path in the sandbox: absolute or relative to its working directory. An entry of a list or a change of a watch also names
 * paths that are not UTF-8.
 */
export type FilePath = string | Pick<FileEntry, "path" | "rawPath">;

/** Options of file operations. */
export interface FileOptions extends ResumingOptions {
  /** The run to which the operation belongs. Default: the run of the sandbox. */
  runId?: string;
}

/** Options of reading a file. */
export interface ReadOptions extends FileOptions {
  /** The first byte to read. */
  start?: number;
  /** The byte before which to stop. */
  end?: number;
  /** Reads only this number of bytes at the end of the file. */
  last?: number;
  /** Reads the range only if the file is unchanged since this `ETag` or time; otherwise the whole file. */
  ifRange?: string;
}

/** Options of writing a file. */
export interface WriteOptions extends FileOptions {
  /** Creates missing parent directories. */
  parents?: boolean;
  /** The permission bits, such as `0o644`. */
  mode?: number;
}

/** Options of creating a directory. */
export interface MakeDirectoryOptions extends FileOptions {
  /** Creates missing parents too, and succeeds if the directory exists. */
  recursive?: boolean;
  /** The permission bits. Default: `0o755`. */
  mode?: number;
}

/** Options of `stat`. */
export interface StatOptions extends FileOptions {
  /** Whether to return the metadata of the target of a symbolic link. Default: `false`. */
  follow?: boolean;
}

/** Options of `watch`. */
export interface WatchOptions extends ResumingOptions {
  /** Whether to watch all directories below, too. Default: `false`. */
  recursive?: boolean;
}

/** Options of `move`. */
export interface MoveOptions extends FileOptions {
  /** Whether to replace an entry at the new path. Default: `false`. */
  overwrite?: boolean;
}

/** Options of `remove`. */
export interface RemoveOptions extends FileOptions {
  /** Whether to delete a directory with its contents. Default: `false`. */
  recursive?: boolean;
}

const FILE: OptionNames<FileOptions> = { runId: true, autoResume: true, signal: true };
const READ: OptionNames<ReadOptions> = { ...FILE, start: true, end: true, last: true, ifRange: true };
const WRITE: OptionNames<WriteOptions> = { ...FILE, parents: true, mode: true };
const MAKE: OptionNames<MakeDirectoryOptions> = { ...FILE, recursive: true, mode: true };
const STAT: OptionNames<StatOptions> = { ...FILE, follow: true };
const WATCH: OptionNames<WatchOptions> = { recursive: true, autoResume: true, signal: true };
const MOVE: OptionNames<MoveOptions> = { ...FILE, overwrite: true };
const REMOVE: OptionNames<RemoveOptions> = { ...FILE, recursive: true };

/** The files of a sandbox. Paths are absolute, or relative to the working directory of the sandbox. */
export class Files extends Described {
  readonly #context: SandboxContext;

  /** For `Sandbox.files`. */
  constructor(context: SandboxContext) {
    super();
    this.#context = context;
  }

  /** Returns the content of a file. */
  async read(path: FilePath, options: ReadOptions = {}): Promise<Uint8Array> {
    return (await this.stream(path, options)).bytes();
  }

  /** Returns the content of a file as text, with U+FFFD for bytes that are not UTF-8. */
  async readText(path: FilePath, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await this.read(path, options));
  }

  /** Opens the content of a file as a stream. */
  async stream(path: FilePath, options: ReadOptions = {}): Promise<FileStream> {
    const range = rangeOf(checkNames(options, READ));
    const headers = {
      ...(range === undefined ? {} : { range }),
      ...(options.ifRange === undefined ? {} : { "if-range": options.ifRange }),
    };
    const stream = await this.#opened("read", this.#url("", { path }, {}, options), path, options, headers);
    this.#record("file.read", textOf(path), stream.length === undefined ? {} : { sizeBytes: stream.length });
    return stream;
  }

  /** Writes a file, atomically. `content` is text, bytes, a `Blob`, a web stream or an iterator of bytes. */
  async write(path: FilePath, content: Content, options: WriteOptions = {}): Promise<FileEntry> {
    const { mode, parents } = checkNames(options, WRITE);
    const query = { mode: modeOf(mode), parents };
    const entry = await this.#ask<FileEntry>("write", path, options, {
      method: "PUT",
      path: this.#url("", { path }, query, options),
      // Writing twice has the same result.
      safety: "repeatable",
      payload: contentPayload(content, "application/octet-stream"),
    });
    this.#recordEntry(entry);
    return entry;
  }

  /** Lists a directory. */
  list(path: FilePath, options: FileOptions = {}): PagedList<FileEntry> {
    checkNames(options, FILE);
    return new PagedList(
      (offset) => {
        const url = this.#url("/list", { path }, { limit: LARGEST_PAGE, offset }, options);
        return this.#ask("list", path, options, { method: "GET", path: url, safety: "repeatable" });
      },
      // A file system may return the same name on two pages; both are passed on, as the service sent them.
      (entry) => entry,
    );
  }

  /** Returns the metadata of a path. With `follow` the metadata of the target of a symbolic link. */
  async stat(path: FilePath, options: StatOptions = {}): Promise<FileEntry> {
    const { follow } = checkNames(options, STAT);
    const url = this.#url("/stat", { path }, { follow }, options);
    return this.#context.json({ method: "GET", path: url, safety: "repeatable", signal: options.signal });
  }

  /** Whether a path exists. A dangling symbolic link counts as existing. */
  async exists(path: FilePath, options: FileOptions = {}): Promise<boolean> {
    checkNames(options, FILE);
    const url = this.#url("/exists", { path }, {}, options);
    const call: Call = { method: "GET", path: url, safety: "repeatable", signal: options.signal };
    return (await this.#context.json<FileExistence>(call)).exists;
  }

  /**
   * Watches the changes in a directory; with `recursive` in all directories below it, too. The watch begins with the first read,
   * or with `start`.
   */
  watch(path: FilePath, options: WatchOptions = {}): FileWatch {
    const { recursive } = checkNames(options, WATCH);
    const url = this.#url("/watch", { path }, { recursive }, options);
    const open = (own: AbortSignal): Promise<StreamedResponse> => {
      const signal = options.signal === undefined ? own : AbortSignal.any([options.signal, own]);
      const call: Call = { method: "GET", path: url, safety: "repeatable", accept: "text/event-stream", signal };
      return this.#context.streamInRun(call, undefined);
    };
    return new FileWatch(open, (error) => this.#context.failed(error));
  }

  /** Creates a directory. */
  async mkdir(path: FilePath, options: MakeDirectoryOptions = {}): Promise<FileEntry> {
    const { recursive, mode } = checkNames(options, MAKE);
    const query = { recursive, mode: modeOf(mode) };
    const entry = await this.#ask<FileEntry>("mkdir", path, options, {
      method: "POST",
      path: this.#url("/mkdir", { path }, query, options),
      safety: recursive === true ? "repeatable" : "after_answer",
    });
    this.#recordEntry(entry);
    return entry;
  }

  /** Moves a file or directory. `to` is the new path of the entry, not a directory to move it into. */
  async move(from: FilePath, to: FilePath, options: MoveOptions = {}): Promise<FileEntry> {
    const { overwrite } = checkNames(options, MOVE);
    const entry = await this.#ask<FileEntry>("move", from, options, {
      method: "POST",
      path: this.#url("/move", { from, to }, { overwrite }, options),
      safety: "after_answer",
    });
    this.#record("file.deleted", textOf(from), {});
    this.#recordEntry(entry);
    return entry;
  }

  /** Deletes a path, without following a symbolic link. Returns the number of files, directories and links deleted. */
  async remove(path: FilePath, options: RemoveOptions = {}): Promise<number> {
    const { recursive } = checkNames(options, REMOVE);
    const removed = await this.#ask<FileDeleted>("delete", path, options, {
      method: "DELETE",
      path: this.#url("", { path }, { recursive }, options),
      safety: "after_answer",
    });
    this.#record("file.deleted", removed.path, {});
    return removed.deleted;
  }

  /** Opens a directory as a tar archive. */
  async pack(path: FilePath, options: FileOptions = {}): Promise<FileStream> {
    checkNames(options, FILE);
    const stream = await this.#opened("pack", this.#url("/tar", { path }, {}, options), path, options);
    this.#record("file.read", textOf(path), { isDirectory: true });
    return stream;
  }

  /** Unpacks a tar archive into a directory, which is created if it does not exist. */
  async unpack(path: FilePath, archive: Content, options: FileOptions = {}): Promise<Unpacked> {
    return this.#unpack(path, contentPayload(archive, TAR), options);
  }

  /** Copies a local directory into a directory of the sandbox, which is created if it does not exist. */
  async uploadDirectory(local: string, path: FilePath, options: FileOptions = {}): Promise<Unpacked> {
    const directories = localDirectories();
    return this.#unpack(path, streamPayload(() => directories.pack(local), TAR, true), options);
  }

  /**
   * Copies a directory of the sandbox into a local one, which is created if it does not exist. Nothing is written outside of
   * it, also not through symbolic links; devices, FIFOs and sockets are omitted. Entries that cannot be created are skipped
   * and reported as an error at the end.
   */
  async downloadDirectory(path: FilePath, local: string, options: FileOptions = {}): Promise<Unpacked> {
    const directories = localDirectories();
    await using archive = await this.pack(path, options);
    try {
      return await directories.unpack(archive, local);
    } catch (error) {
      if (error instanceof SandboxdError) throw error;
      throw errorOf("LOCAL_FILE", `${local}: ${messageOf(error)}`, { cause: error });
    }
  }

  protected describe(): object {
    return { sandbox: this.#context.id };
  }

  async #unpack(path: FilePath, payload: Payload, options: FileOptions): Promise<Unpacked> {
    checkNames(options, FILE);
    const unpacked = await this.#ask<Unpacked>("unpack", path, options, {
      method: "PUT",
      path: this.#url("/tar", { path }, {}, options),
      // Unpacking twice has the same result.
      safety: "repeatable",
      payload,
    });
    this.#record("file.created", unpacked.path, { isDirectory: true });
    return unpacked;
  }

  #url(verb: string, paths: Readonly<Record<string, FilePath>>, query: Query, options: ResumingOptions): string {
    const pairs = Object.entries(paths).map(([name, path]) => `${name}=${encoded(path)}`);
    const rest = queryString({ ...query, autoResume: options.autoResume }).replace("?", "&");
    return `${this.#context.path(`/files${verb}`)}?${pairs.join("&")}${rest}`;
  }

  async #ask<T>(operation: string, path: FilePath, options: FileOptions, call: Call): Promise<T> {
    try {
      return await this.#context.inRun<T>({ ...call, signal: options.signal }, options.runId);
    } catch (error) {
      throw this.#failed(operation, path, error);
    }
  }

  async #opened(
    operation: string,
    url: string,
    path: FilePath,
    options: FileOptions,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<FileStream> {
    const fail = (error: unknown): unknown => this.#failed(operation, path, error);
    const call: Call = { method: "GET", path: url, safety: "repeatable", accept: "*/*", headers, signal: options.signal };
    try {
      return new FileStream(await this.#context.streamInRun(call, options.runId), fail);
    } catch (error) {
      throw fail(error);
    }
  }

  #record(kind: EventKind, path: string, data: Readonly<Record<string, unknown>>): void {
    this.#context.record(kind, { path, ...data });
  }

  #recordEntry({ path, sizeBytes, isDirectory }: FileEntry): void {
    this.#record("file.created", path, { sizeBytes, isDirectory });
  }

  #failed(operation: string, path: FilePath, error: unknown): unknown {
    if (!(error instanceof SandboxdError)) return error;
    this.#record("file.error", textOf(path), { operation, code: error.codeName, message: error.message });
    return this.#context.failed(error);
  }
}

function localDirectories(): Directories {
  if (platform.directories === undefined) {
    throw configurationError("directories are not available in this runtime; use pack and unpack");
  }
  return platform.directories;
}

function textOf(path: FilePath): string {
  return typeof path === "string" ? path : path.path;
}

/** The path as a query value. `rawPath` is percent-encoded already. */
function encoded(path: FilePath): string {
  if (typeof path === "string") return encodeURIComponent(path);
  return path.rawPath ?? encodeURIComponent(path.path);
}

function modeOf(mode: number | undefined): string | undefined {
  return mode?.toString(8).padStart(3, "0");
}

/** The header `Range`. HTTP has no empty range; the service reports the error. */
function rangeOf({ start, end, last }: ReadOptions): string | undefined {
  if (last !== undefined) return `bytes=-${last}`;
  if (start === undefined && end === undefined) return undefined;
  return `bytes=${start ?? 0}-${end === undefined ? "" : end - 1}`;
}
