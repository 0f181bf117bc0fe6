/** The shared part of streams: they can be iterated, and closed before their end. */
export abstract class ClosableIterator<T> implements AsyncIterableIterator<T>, AsyncDisposable {
  abstract next(): Promise<IteratorResult<T, undefined>>;

  abstract close(): void;

  return(): Promise<IteratorResult<T, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}
