import { Described } from "./described.js";

/** The shared part of streams: they can be iterated, and closed before their end. */
export abstract class ClosableIterator<T> extends Described implements AsyncIterableIterator<T>, AsyncDisposable {
  /** Returns the next item. Without items that are left, `done` is `true`. */
  abstract next(): Promise<IteratorResult<T, undefined>>;

  /** Ends the stream before its end. Has no effect after it. */
  abstract close(): void;

  /** Ends the stream; `for await` calls it when the loop is left. */
  return(): Promise<IteratorResult<T, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** The stream itself, for `for await`. */
  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Ends the stream at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  protected describe(): object {
    return {};
  }
}
