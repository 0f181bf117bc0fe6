/** Lists that fetch their pages on demand. */

import { Described } from "./described.js";
import type { Pagination } from "./models.js";

/** The largest page size of the service. */
export const LARGEST_PAGE = 100;

/** A page of a list. */
export interface Page<T> {
  /** The items. */
  readonly data: readonly T[];
  /** The position of the page in its list. */
  readonly pagination: Pagination;
}

/** A list. Iterating it fetches its pages on demand. */
export class PagedList<T> extends Described implements AsyncIterable<T> {
  readonly #fetch: (offset: number) => Promise<Page<T>>;
  readonly #idOf: (item: T) => unknown;
  #first: Promise<Page<T>> | undefined;

  /** For the methods that list. `fetch` returns the page at an offset, `idOf` what distinguishes an item from others. */
  constructor(fetch: (offset: number) => Promise<Page<T>>, idOf: (item: T) => unknown = (item) => item) {
    super();
    this.#fetch = fetch;
    this.#idOf = idOf;
  }

  /** The page that starts at `offset`. */
  page(offset = 0): Promise<Page<T>> {
    return this.#fetch(offset);
  }

  /** The exact number of items that match the filters, as of the first request of this object. */
  async total(): Promise<number> {
    const page = await (this.#first ??= this.#fetch(0));
    return page.pagination.total;
  }

  /** All items. */
  async toArray(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }

  protected describe(): object {
    return {};
  }

  /** The items, page by page. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    let last = new Set<unknown>();
    for (let offset = 0; ; ) {
      const page = await (offset === 0 ? (this.#first ??= this.#fetch(0)) : this.#fetch(offset));
      this.#first = undefined;
      // An item that moves to a later page because others are created is returned only once.
      const fresh = page.data.filter((item) => !last.has(this.#idOf(item)));
      last = new Set(page.data.map(this.#idOf));
      yield* fresh;
      // An empty page that announces more would cause an endless loop.
      if (!page.pagination.hasMore || page.data.length === 0) return;
      offset += page.data.length;
    }
  }
}
