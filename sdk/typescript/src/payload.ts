/** Request bodies: bytes in memory, or a stream. A chunk is requested after the previous one was sent. */

import type { Attempt } from "./attempt.js";

const JSON_TYPE = "application/json";

/** Content to send: text, bytes, or a stream of bytes. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>;

/** A request body, for all attempts of a call. */
export interface Payload {
  readonly contentType: string;
  /** Whether another attempt can send it. */
  canBeSent(): boolean;
  /** The body for one attempt. */
  body(attempt: Attempt): Uint8Array | AsyncIterable<Uint8Array>;
}

/** A JSON body. */
export function jsonPayload(value: unknown): Payload {
  return bytesPayload(new TextEncoder().encode(JSON.stringify(value)), JSON_TYPE);
}

/** The payload of content of the caller. */
export function contentPayload(content: Content, contentType: string): Payload {
  if (typeof content === "string") return bytesPayload(new TextEncoder().encode(content), contentType);
  if (content instanceof Uint8Array) return bytesPayload(content, contentType);
  if (content instanceof ArrayBuffer) return bytesPayload(new Uint8Array(content), contentType);
  if (content instanceof Blob) return streamPayload(() => chunksOf(content.stream()), contentType, true);
  const open = Symbol.asyncIterator in content ? () => content : () => chunksOf(content);
  return streamPayload(open, contentType, false);
}

function bytesPayload(bytes: Uint8Array, contentType: string): Payload {
  return { contentType, canBeSent: () => true, body: () => bytes };
}

/** A streamed payload. If it is repeatable, each attempt opens the source again. */
export function streamPayload(
  open: () => AsyncIterable<Uint8Array>,
  contentType: string,
  isRepeatable: boolean,
): Payload {
  let isOpened = false;
  return {
    contentType,
    canBeSent: () => isRepeatable || !isOpened,
    body: (attempt) => {
      isOpened = true;
      return timed(open(), attempt);
    },
  };
}

/** The timeout restarts with each chunk, and is suspended while the source has no data. */
async function* timed(chunks: AsyncIterable<Uint8Array>, attempt: Attempt): AsyncGenerator<Uint8Array> {
  attempt.suspend();
  try {
    for await (const chunk of chunks) {
      attempt.resume();
      yield chunk;
      attempt.suspend();
    }
  } catch (error) {
    attempt.sourceError = error;
    throw error;
  }
  attempt.resume();
}

/** The chunks of a web stream, also in runtimes whose streams are not iterable. */
export async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
