/** An incremental parser for Server-Sent Events as defined by the HTML standard. It buffers at most one event, of bounded size. */

/** Far above a line of output of 64 KiB, even if each byte became U+FFFD. */
const LONGEST = 4 << 20;
/** A field of one word. */
const LONGEST_END = 64;

/** A Server-Sent Event. */
export interface SseEvent {
  /** The event name; `message` by default. */
  readonly event: string;
  /** The data lines, joined by line feeds. */
  readonly data: string;
  /** The last id received with this event or before it, for `Last-Event-ID`. */
  readonly id?: string;
  /** The line end of the data, if the stream was requested with line ends; a field specific to sandboxd. */
  readonly end?: string;
}

/** A parser for one stream. */
export class SseParser {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** The start of an incomplete line. */
  #line = "";
  /** Whether the last line ended with CR, so that a following LF belongs to it. */
  #afterCr = false;
  #begun = false;
  #event = "";
  #data: string[] = [];
  #length = 0;
  #end: string | undefined;
  /** The id of the current event, or of the last one. */
  #id: string | undefined;
  #lastId: string | undefined;

  /** Parses the next bytes and returns the completed events. Throws a `RangeError` for an event of more than 4 MiB. */
  push(bytes: Uint8Array): SseEvent[] {
    const text = this.#decoder.decode(bytes, { stream: true });
    const events: SseEvent[] = [];
    let begin = this.#afterCr && text.startsWith("\n") ? 1 : 0;
    if (text.length > 0) this.#afterCr = false;
    const ends = /\r\n|\n|\r/g;
    ends.lastIndex = begin;
    for (let found = ends.exec(text); found !== null; found = ends.exec(text)) {
      this.#hold(text.slice(begin, found.index));
      begin = ends.lastIndex;
      const line = this.#line;
      this.#line = "";
      const event = this.#take(line);
      if (event !== undefined) events.push(event);
    }
    this.#hold(text.slice(begin));
    if (text.endsWith("\r")) this.#afterCr = true;
    return events;
  }

  /**
   * The last id received, for `Last-Event-ID` after a lost connection. Events without data, which are not returned, count;
   * incomplete events do not.
   */
  get lastId(): string | undefined {
    return this.#lastId;
  }

  #hold(text: string): void {
    if (this.#line.length + this.#length + text.length > LONGEST) {
      throw new RangeError(`an event of the stream is longer than ${LONGEST} bytes`);
    }
    this.#line += text;
  }

  #take(text: string): SseEvent | undefined {
    const line = !this.#begun && text.startsWith("\ufeff") ? text.slice(1) : text;
    this.#begun = true;
    if (line === "") return this.#endEvent();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const start = line.startsWith(" ", colon + 1) ? colon + 2 : colon + 1;
    const value = colon < 0 ? "" : line.slice(start);
    switch (field) {
      case "event":
        this.#event = value;
        break;
      case "data":
        this.#data.push(value);
        this.#length += value.length + 1;
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
      case "end":
        if (value.length <= LONGEST_END) this.#end = value;
        break;
      // A comment, `retry`, or an unknown field.
      default:
    }
    return undefined;
  }

  #endEvent(): SseEvent | undefined {
    this.#lastId = this.#id;
    const [event, data, end] = [this.#event, this.#data, this.#end];
    this.#event = "";
    this.#data = [];
    this.#length = 0;
    this.#end = undefined;
    if (data.length === 0) return undefined;
    return {
      event: event === "" ? "message" : event,
      data: data.join("\n"),
      ...(this.#id === undefined ? {} : { id: this.#id }),
      ...(end === undefined ? {} : { end }),
    };
  }
}
