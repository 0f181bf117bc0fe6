/** Frames of the websocket protocol (RFC 6455), as a client writes and reads them. */

/** Far above the messages of the service. */
const LONGEST_MESSAGE = 4 << 20;

/** The kinds of frames. */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** A complete message or control frame. */
export interface Frame {
  readonly opcode: number;
  readonly payload: Uint8Array;
}

/** Encodes an unfragmented, masked frame. */
export function encodeFrame(opcode: number, payload: Uint8Array): Uint8Array {
  const { length } = payload;
  const lengthBytes = length < 126 ? 0 : length < 1 << 16 ? 2 : 8;
  const frame = new Uint8Array(2 + lengthBytes + 4 + length);
  const view = new DataView(frame.buffer);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (lengthBytes === 0 ? length : lengthBytes === 2 ? 126 : 127);
  if (lengthBytes === 2) view.setUint16(2, length);
  if (lengthBytes === 8) view.setBigUint64(2, BigInt(length));
  const mask = crypto.getRandomValues(new Uint8Array(4));
  frame.set(mask, 2 + lengthBytes);
  const start = 6 + lengthBytes;
  for (let at = 0; at < length; at++) frame[start + at] = (payload[at] ?? 0) ^ (mask[at & 3] ?? 0);
  return frame;
}

/** Decodes the frames of a service, and joins fragments. */
export class FrameDecoder {
  #buffer: Uint8Array = new Uint8Array();
  #opcode: number | undefined;
  #fragments: Uint8Array[] = [];

  /** Decodes the next bytes. Throws if they violate the protocol. */
  push(bytes: Uint8Array): Frame[] {
    this.#buffer = this.#buffer.length === 0 ? bytes : concat([this.#buffer, bytes]);
    const frames: Frame[] = [];
    for (;;) {
      const frame = this.#next();
      if (frame === undefined) return frames;
      if (frame !== "fragment") frames.push(frame);
    }
  }

  #next(): Frame | "fragment" | undefined {
    const buffer = this.#buffer;
    if (buffer.length < 2) return undefined;
    const view = new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
    const [first, second] = [view.getUint8(0), view.getUint8(1)];
    if ((first & 0x70) !== 0 || (second & 0x80) !== 0) throw new Error("a frame of the service is invalid");
    let [start, length] = [2, second & 0x7f];
    if (length === 126) {
      if (buffer.length < 4) return undefined;
      [start, length] = [4, view.getUint16(2)];
    } else if (length === 127) {
      if (buffer.length < 10) return undefined;
      [start, length] = [10, Number(view.getBigUint64(2))];
    }
    if (length > LONGEST_MESSAGE) throw new Error("a message of the service is too long");
    if (buffer.length < start + length) return undefined;
    const payload = buffer.slice(start, start + length);
    this.#buffer = buffer.subarray(start + length);
    return this.#joined(first & 0x0f, (first & 0x80) !== 0, payload);
  }

  #joined(opcode: number, isFinal: boolean, payload: Uint8Array): Frame | "fragment" {
    if (opcode >= OPCODE.close) return { opcode, payload };
    if (opcode !== OPCODE.continuation) {
      if (isFinal) return { opcode, payload };
      this.#opcode = opcode;
      this.#fragments = [];
    }
    if (this.#opcode === undefined) throw new Error("a frame of the service continues no message");
    this.#fragments.push(payload);
    if (this.#fragments.reduce((sum, each) => sum + each.length, 0) > LONGEST_MESSAGE) {
      throw new Error("a message of the service is too long");
    }
    if (!isFinal) return "fragment";
    const frame = { opcode: this.#opcode, payload: concat(this.#fragments) };
    this.#opcode = undefined;
    this.#fragments = [];
    return frame;
  }
}

/** Joins byte arrays. */
export function concat(parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}
