/** The output of one stream, up to a limit: of longer output the first and the last half, like a buffered response of the service. */

/** The default of the service for a stream of a buffered response, in characters instead of bytes. */
const LIMIT = 16 << 20;
/** Lines are joined to chunks of this size, so that removing the oldest part is cheap. */
const CHUNK = 64 << 10;

/** The text of a stream. */
export class OutputBuffer {
  readonly #half: number;
  #head = "";
  /** What follows the head; the parts before the last half are removed, chunk by chunk. */
  readonly #tail: string[] = [];
  #tailLength = 0;
  #missingBytes = 0;

  /** `limit` is the largest number of characters. */
  constructor(limit = LIMIT) {
    this.#half = Math.floor(limit / 2);
  }

  /** Appends the next part. */
  push(text: string): void {
    const isHead = this.#tailLength === 0 && this.#missingBytes === 0;
    const begin = isHead ? boundary(text, this.#half - this.#head.length) : 0;
    this.#head += text.slice(0, begin);
    this.#append(text.slice(begin));
    for (let [first = ""] = this.#tail; this.#tailLength - first.length >= this.#half && first !== ""; [first = ""] = this.#tail) {
      this.#tail.shift();
      this.#tailLength -= first.length;
      this.#missingBytes += bytesOf(first);
    }
  }

  /** Counts bytes that the service no longer has. */
  miss(bytes: number): void {
    this.#missingBytes += bytes;
  }

  /** The text, with a line in place of a missing part. */
  result(): { readonly text: string; readonly isTruncated: boolean } {
    const tail = this.#tail.join("");
    const begin = boundary(tail, this.#tailLength - this.#half);
    const missing = this.#missingBytes + bytesOf(tail.slice(0, begin));
    if (missing === 0) return { text: this.#head + tail, isTruncated: false };
    const lineEnd = this.#head === "" || this.#head.endsWith("\n") ? "" : "\n";
    const line = `${lineEnd}[... ${missing} bytes are missing here ...]\n`;
    return { text: this.#head + line + tail.slice(begin), isTruncated: true };
  }

  #append(text: string): void {
    if (text === "") return;
    this.#tailLength += text.length;
    const last = this.#tail.at(-1);
    if (last !== undefined && last.length < CHUNK) this.#tail[this.#tail.length - 1] = last + text;
    else this.#tail.push(text);
  }
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** The index, at least 0, or the next one if it is in the middle of a character. */
function boundary(text: string, index: number): number {
  const at = Math.min(Math.max(index, 0), text.length);
  const isInside = /[\ud800-\udbff]/.test(text.charAt(at - 1)) && /[\udc00-\udfff]/.test(text.charAt(at));
  return isInside ? at + 1 : at;
}
