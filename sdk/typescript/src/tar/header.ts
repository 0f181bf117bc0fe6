/**
 * Headers of tar archives: ustar with pax records for long names, and the GNU extensions when reading.
 *
 * Names are strings with one character per byte, because paths need not be UTF-8.
 */

/** The unit of archives. Headers have one block, contents are padded to whole blocks. */
export const BLOCK = 512;

/** Limit for the name, the link target and the pax records of an entry; far above the longest path. */
const LONGEST_RECORDS = 65_536;

const NAME = { at: 0, length: 100 } as const;
const MODE = { at: 100, length: 8 } as const;
const SIZE = { at: 124, length: 12 } as const;
const MTIME = { at: 136, length: 12 } as const;
const CHECKSUM = { at: 148, length: 8 } as const;
const TYPE = 156;
const LINK = { at: 157, length: 100 } as const;
const MAGIC = 257;
const PREFIX = { at: 345, length: 155 } as const;

interface Field {
  readonly at: number;
  readonly length: number;
}

/** The kinds of entries that are created. All others are omitted. */
export type EntryType = "file" | "directory" | "symlink" | "hardlink" | "other";

/** What an archive says about an entry. */
export interface EntryHeader {
  readonly type: EntryType;
  readonly name: string;
  readonly link: string;
  readonly mode: number;
  /** The time of the last change, in seconds. */
  readonly mtime: number;
  /** The length of the content. */
  readonly size: number;
}

/** An archive that cannot be read. */
export class ArchiveError extends Error {}

/** Converts bytes to a string with one character per byte. */
export function byteText(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 4096) text += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return text;
}

/** The inverse of {@link byteText}. */
export function textBytes(text: string): Uint8Array {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

/** The blocks of a header. Names that do not fit are preceded by pax records. */
export function headerBlocks(header: EntryHeader): Uint8Array[] {
  const records = paxRecords(header);
  if (records.length === 0) return [block(header, TYPE_FLAGS[header.type])];
  const content = textBytes(records);
  const pax = { ...header, name: "pax", link: "", mode: 0o644, size: content.length };
  return [block(pax, "x"), content, new Uint8Array(padding(content.length)), block(header, TYPE_FLAGS[header.type])];
}

/** The number of bytes after a content up to the next block. */
export function padding(length: number): number {
  return (BLOCK - (length % BLOCK)) % BLOCK;
}

const TYPE_FLAGS: Readonly<Record<EntryType, string>> = {
  file: "0",
  hardlink: "1",
  symlink: "2",
  directory: "5",
  other: "0",
};
const LARGEST_OCTAL = 8 ** 11 - 1;

function paxRecords({ name, link, size }: EntryHeader): string {
  return [
    name.length > NAME.length ? paxRecord("path", name) : "",
    link.length > LINK.length ? paxRecord("linkpath", link) : "",
    size > LARGEST_OCTAL ? paxRecord("size", String(size)) : "",
  ].join("");
}

/** A record begins with its length, which includes the digits of the length. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length;
  while (String(length).length + rest.length !== length) length += 1;
  return `${length}${rest}`;
}

function block(header: EntryHeader, flag: string): Uint8Array {
  const bytes = new Uint8Array(BLOCK);
  const put = (field: Field, text: string): void => {
    bytes.set(textBytes(text.slice(0, field.length)), field.at);
  };
  const octal = (field: Field, value: number): void => {
    put(field, `${Math.max(0, value).toString(8).padStart(field.length - 1, "0")}\0`);
  };
  put(NAME, header.name);
  put(LINK, header.link);
  octal(MODE, header.mode & 0o7777);
  octal({ at: 108, length: 8 }, 0);
  octal({ at: 116, length: 8 }, 0);
  octal(SIZE, Math.min(header.size, LARGEST_OCTAL));
  octal(MTIME, Math.floor(header.mtime));
  bytes[TYPE] = flag.charCodeAt(0);
  put({ at: MAGIC, length: 8 }, "ustar\x0000");
  put(CHECKSUM, " ".repeat(CHECKSUM.length));
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  put(CHECKSUM, `${sum.toString(8).padStart(6, "0")}\0 `);
  return bytes;
}

/** Reads the headers of an archive, one block after the other. Records about an entry precede it. */
export class HeaderReader {
  #records: Partial<Record<"path" | "linkpath" | "size" | "mtime", string>> = {};
  #recordBytes = 0;

  /**
   * Interprets a header block. `records` is the length of records about the next entry, which the caller passes to
   * {@link HeaderReader.read}.
   */
  next(bytes: Uint8Array): { entry: EntryHeader } | { records: number; flag: string } | { skip: number } {
    const flag = String.fromCharCode(bytes[TYPE] ?? 0);
    checkSum(bytes);
    const size = number(bytes, SIZE);
    if (flag === "g") return { skip: size };
    if (flag === "x" || flag === "L" || flag === "K") {
      this.#recordBytes += size;
      if (this.#recordBytes > 3 * LONGEST_RECORDS || size > LONGEST_RECORDS) {
        throw new ArchiveError(`a name in the archive is longer than ${LONGEST_RECORDS} bytes`);
      }
      return { records: size, flag };
    }
    const entry = this.#entry(bytes, flag, size);
    this.#records = {};
    this.#recordBytes = 0;
    return { entry };
  }

  /** Takes records about the next entry. */
  read(flag: string, content: Uint8Array): void {
    const text = byteText(content);
    if (flag === "L") this.#records.path = upToNul(text);
    else if (flag === "K") this.#records.linkpath = upToNul(text);
    else for (const [key, value] of paxPairs(text)) this.#record(key, value);
  }

  #record(key: string, value: string): void {
    if (key === "path" || key === "linkpath" || key === "size" || key === "mtime") this.#records[key] = value;
  }

  #entry(bytes: Uint8Array, flag: string, size: number): EntryHeader {
    const records = this.#records;
    const prefix = isUstar(bytes) ? field(bytes, PREFIX) : "";
    const short = field(bytes, NAME);
    const name = records.path ?? (prefix === "" ? short : `${prefix}/${short}`);
    const length = records.size === undefined ? size : decimal(records.size);
    const type = typeOf(flag, name);
    return {
      type,
      name,
      link: records.linkpath ?? field(bytes, LINK),
      mode: number(bytes, MODE) & 0o777,
      mtime: records.mtime === undefined ? number(bytes, MTIME) : decimal(records.mtime),
      // Links and directories have no content, whatever their header says.
      size: type === "file" || type === "other" ? length : 0,
    };
  }
}

function typeOf(flag: string, name: string): EntryType {
  switch (flag) {
    case "0":
    case "\0":
    case "7":
      return flag !== "7" && name.endsWith("/") ? "directory" : "file";
    case "1":
      return "hardlink";
    case "2":
      return "symlink";
    case "5":
      return "directory";
    default:
      return "other";
  }
}

/** The prefix of names; GNU archives use its place for other things. */
function isUstar(bytes: Uint8Array): boolean {
  return byteText(bytes.subarray(MAGIC, MAGIC + 6)) === "ustar\0";
}

function* paxPairs(text: string): Generator<[string, string]> {
  let at = 0;
  while (at < text.length) {
    const space = text.indexOf(" ", at);
    const length = decimal(text.slice(at, space));
    const end = at + length;
    const record = text.slice(space + 1, end - 1);
    const equals = record.indexOf("=");
    if (space < 0 || length < 5 || end > text.length || equals < 0) throw new ArchiveError("a pax record is malformed");
    yield [record.slice(0, equals), record.slice(equals + 1)];
    at = end;
  }
}

function decimal(text: string): number {
  const value = Number(text);
  if (!/^\d+(\.\d*)?$/.test(text) || value > Number.MAX_SAFE_INTEGER) throw new ArchiveError(`${text} is not a number`);
  return value;
}

function checkSum(bytes: Uint8Array): void {
  const end = CHECKSUM.at + CHECKSUM.length;
  const sum = bytes.reduce((total, byte, at) => total + (at >= CHECKSUM.at && at < end ? 32 : byte), 0);
  if (sum !== number(bytes, CHECKSUM)) throw new ArchiveError("a header of the archive has a wrong checksum");
}

function field(bytes: Uint8Array, { at, length }: Field): string {
  return upToNul(byteText(bytes.subarray(at, at + length)));
}

function upToNul(text: string): string {
  const end = text.indexOf("\0");
  return end < 0 ? text : text.slice(0, end);
}

/** A number in octal, or in base 256 if the first bit is set. */
function number(bytes: Uint8Array, range: Field): number {
  const first = bytes[range.at] ?? 0;
  if ((first & 0x80) === 0) {
    const text = field(bytes, range).trim();
    if (!/^[0-7]*$/.test(text)) throw new ArchiveError("a header of the archive has a malformed number");
    return text === "" ? 0 : Number.parseInt(text, 8);
  }
  let value = first & 0x7f;
  for (const byte of bytes.subarray(range.at + 1, range.at + range.length)) value = value * 256 + byte;
  if (value > Number.MAX_SAFE_INTEGER) throw new ArchiveError("a number in the archive is too large");
  return value;
}
