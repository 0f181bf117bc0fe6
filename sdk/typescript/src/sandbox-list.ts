/** Lists of sandboxes. The service lists one state or all of them; the live ones are two of its lists, one after the other. */

import { metadataQuery, queryString } from "./context.js";
import type { CallOptions } from "./context.js";
import type { SandboxItem, SandboxState } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { LARGEST_PAGE, PagedList } from "./paging.js";
import type { Page } from "./paging.js";
import type { Transport } from "./transport.js";

/** Filters of sandboxes. */
export interface ListSandboxesOptions extends CallOptions {
  /** Only sandboxes in this state, or `all`, also those that were terminated. Default: the live ones, running or paused. */
  state?: SandboxState | "all";
  /** Only sandboxes of this image. */
  image?: string;
  /** Tags that a sandbox must have, all of them. */
  metadata?: Readonly<Record<string, string>>;
  /** Whether the items also have `name`, `isolation`, `metadata`, `hibernatedAt` and `expiresAt`. Default: `false`. */
  details?: boolean;
  /** The number of sandboxes of a request: 1 to 100. Default: 100. */
  pageSize?: number;
}

const OPTIONS: OptionNames<ListSandboxesOptions> = {
  ...{ state: true, image: true, metadata: true, details: true, pageSize: true, signal: true },
};

type State = SandboxState | undefined;

/** Lists sandboxes. */
export function listSandboxes(transport: Transport, options: ListSandboxesOptions): PagedList<SandboxItem> {
  const { state, image, metadata, details, signal, pageSize = LARGEST_PAGE } = checkNames(options, OPTIONS);
  const fetch = (stateOfPage: State, offset: number): Promise<Page<SandboxItem>> => {
    const query = { state: stateOfPage, image, details, limit: pageSize, offset, ...metadataQuery(metadata) };
    const path = `/v1/sandboxes${queryString(query)}`;
    return transport.json<Page<SandboxItem>>({ method: "GET", path, safety: "repeatable", signal });
  };
  if (state === undefined) return new LiveSandboxes(fetch, pageSize);
  return listOf(fetch, state === "all" ? undefined : state);
}

type Fetch = (state: State, offset: number) => Promise<Page<SandboxItem>>;

function listOf(fetch: Fetch, state: State): PagedList<SandboxItem> {
  return new PagedList((offset) => fetch(state, offset), ({ id }) => id);
}

/** The running sandboxes, newest first, and then the paused ones. */
class LiveSandboxes extends PagedList<SandboxItem> {
  readonly #fetch: Fetch;

  constructor(fetch: Fetch, pageSize: number) {
    super((offset) => livePage(fetch, offset, pageSize));
    this.#fetch = fetch;
  }

  override async *[Symbol.asyncIterator](): AsyncGenerator<SandboxItem> {
    const seen = new Set<string>();
    // A sandbox that was paused while the running ones were listed, and is resumed before the paused ones are, is found at the end.
    for (const state of ["running", "paused", "running"]) {
      for await (const item of listOf(this.#fetch, state)) {
        if (seen.has(item.id)) continue;
        seen.add(item.id);
        yield item;
      }
    }
  }
}

/** A page of the two lists as if they were one. */
async function livePage(fetch: Fetch, offset: number, limit: number): Promise<Page<SandboxItem>> {
  const running = await fetch("running", offset);
  const paused = await fetch("paused", Math.max(offset - running.pagination.total, 0));
  const data = [...running.data, ...paused.data].slice(0, limit);
  const total = running.pagination.total + paused.pagination.total;
  return { data, pagination: { total, limit, offset, hasMore: offset + data.length < total } };
}
