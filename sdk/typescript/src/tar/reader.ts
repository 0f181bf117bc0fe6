/** Reads the entries of a tar archive from a stream, with memory for one chunk and one header. */

import { ArchiveError, BLOCK, HeaderReader, padding } from "./header.js";
import type { EntryHeader } from "./header.js";

/** An entry whose content must be read or skipped before the next one. */
export interface ArchiveEntry {
  readonly header: EntryHeader;
  /** The content, in pieces. */
  content(): AsyncGenerator<Uint8Array, void>;
}

/** The entries of an archive. Reads the source to its end. */
export async function* archiveEntries(source: AsyncIterable<Uint8Array>): AsyncGenerator<ArchiveEntry, void> {
  const pieces = new Pieces(source);
  const headers = new HeaderReader();
  for (;;) {
    const bytes = await pieces.exactly(BLOCK);
    if (bytes.every((byte) => byte === 0)) break;
    const found = headers.next(bytes);
    if ("skip" in found) {
      await pieces.skip(found.skip + padding(found.skip));
    } else if ("records" in found) {
      headers.read(found.flag, await pieces.exactly(found.records));
      await pieces.skip(padding(found.records));
    } else {
      const { size } = found.entry;
      let left = size;
      yield {
        header: found.entry,
        content: async function* () {
          while (left > 0) {
            const piece = await pieces.some(left);
            left -= piece.length;
            yield piece;
          }
        },
      };
      await pieces.skip(left + padding(size));
    }
  }
  await pieces.drain();
}

/** A stream that is read in pieces of wanted lengths. */
class Pieces {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At least one byte, and at most `most`. */
  async some(most: number): Promise<Uint8Array> {
    while (this.#rest.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) throw new ArchiveError("the archive is incomplete");
      this.#rest = next.value;
    }
    const piece = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(piece.length);
    return piece;
  }

  /** A copy of the next `length` bytes. */
  async exactly(length: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(length);
    let filled = 0;
    while (filled < length) {
      const piece = await this.some(length - filled);
      bytes.set(piece, filled);
      filled += piece.length;
    }
    return bytes;
  }

  async skip(length: number): Promise<void> {
    for (let left = length; left > 0; ) left -= (await this.some(left)).length;
  }

  /** Reads up to the end of the source. */
  async drain(): Promise<void> {
    while ((await this.#source.next()).done !== true);
  }
}
