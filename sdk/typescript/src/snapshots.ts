/** Snapshots: the content of a sandbox's disk at one moment. */

import { defined, idempotencyHeaders, metadataQuery, queryString, signalOf } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { Described } from "./described.js";
import { argumentError } from "./error-classes.js";
import { randomId } from "./ids.js";
import type { RollbackBody, SandboxView, Snapshot, SnapshotBody, SnapshotDeleted } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { LARGEST_PAGE, PagedList } from "./paging.js";
import type { Page } from "./paging.js";
import { jsonPayload } from "./payload.js";
import type { Transport } from "./transport.js";

/** Options of a new snapshot. */
export interface SnapshotOptions extends CallOptions {
  /** A name. Several snapshots can have the same. */
  name?: string;
  /** Tags, by which lists can be filtered. */
  metadata?: Readonly<Record<string, string>>;
  /** Whether to store the processes and their memory too. `Sandboxd.info` lists the backends that can. Default: `false`. */
  memory?: boolean;
  /** A request with the same key within 24 hours returns the same snapshot. */
  idempotencyKey?: string;
}

/** Filters of snapshots. */
export interface ListSnapshotsOptions extends CallOptions {
  /** Only snapshots of this sandbox. */
  sandboxId?: string;
  /** Only snapshots with this name. */
  name?: string;
  /** Tags that a snapshot must have, all of them. */
  metadata?: Readonly<Record<string, string>>;
  /** The number of snapshots of a request: 1 to 100. Default: 100. */
  pageSize?: number;
}

const TAKE: OptionNames<SnapshotOptions> = { name: true, metadata: true, memory: true, idempotencyKey: true, signal: true };
const LIST: OptionNames<ListSnapshotsOptions> = { sandboxId: true, name: true, metadata: true, pageSize: true, signal: true };

/** The snapshots of the account. `Sandbox.snapshot` takes one. */
export class Snapshots extends Described {
  readonly #transport: Transport;

  /** For `Sandboxd.snapshots`. */
  constructor(transport: Transport) {
    super();
    this.#transport = transport;
  }

  /** Returns a snapshot by its id, or the newest one with a name. */
  async get(id: string, options: CallOptions = {}): Promise<Snapshot> {
    const signal = signalOf(options);
    return this.#transport.json<Snapshot>({ method: "GET", path: pathOf(id), safety: "repeatable", signal });
  }

  /** Lists snapshots, newest first. */
  list(options: ListSnapshotsOptions = {}): PagedList<Snapshot> {
    const { sandboxId, name, metadata, signal, pageSize = LARGEST_PAGE } = checkNames(options, LIST);
    return new PagedList(
      (offset) => {
        const query = { sandboxId, name, limit: pageSize, offset, ...metadataQuery(metadata) };
        const path = `/v1/snapshots${queryString(query)}`;
        return this.#transport.json<Page<Snapshot>>({ method: "GET", path, safety: "repeatable", signal });
      },
      (snapshot) => snapshot.id,
    );
  }

  /** Deletes a snapshot, given with its id or a name that no other one has. Sandboxes that were created from it are not affected. */
  async delete(snapshot: Snapshot | string, options: CallOptions = {}): Promise<SnapshotDeleted> {
    const [path, signal] = [pathOf(idOf(snapshot)), signalOf(options)];
    return this.#transport.json<SnapshotDeleted>({ method: "DELETE", path, safety: "after_answer", signal });
  }

  protected describe(): object {
    return {};
  }
}

/** Takes a snapshot of a sandbox. */
export async function takeSnapshot(context: SandboxContext, options: SnapshotOptions): Promise<Snapshot> {
  const { name, metadata, memory, signal } = checkNames(options, TAKE);
  const snapshot = await context.json<Snapshot>({
    method: "POST",
    path: context.path("/snapshots"),
    safety: "repeatable",
    payload: jsonPayload(defined<SnapshotBody>({ name, metadata, memory })),
    headers: idempotencyHeaders(options.idempotencyKey ?? randomId("key_")),
    signal,
  });
  const data = { snapshotId: snapshot.id, name: snapshot.name ?? null, sizeBytes: snapshot.sizeBytes };
  context.record("snapshot.created", data);
  return snapshot;
}

/** Rolls a sandbox back to one of its snapshots. */
export async function rollBack(
  context: SandboxContext,
  snapshot: Snapshot | string,
  options: CallOptions,
): Promise<SandboxView> {
  const body: RollbackBody = { snapshotId: idOf(snapshot) };
  const view = await context.json<SandboxView>({
    method: "POST",
    path: context.path("/rollback"),
    // After a lost response the sandbox may have rolled back, and a retry would discard what was written since.
    safety: "after_answer",
    payload: jsonPayload(body),
    signal: signalOf(options),
  });
  context.record("sandbox.rolled_back", { snapshotId: body.snapshotId });
  return view;
}

function idOf(snapshot: Snapshot | string): string {
  return typeof snapshot === "string" ? snapshot : snapshot.id;
}

function pathOf(id: string): string {
  // An id of something else is a mistake, not a name.
  const isName = !/^(sb|snap|tpl|ex)_/.test(id) && !["", ".", ".."].includes(id);
  if (!isName && !/^snap_[0-9a-z]+$/.test(id)) throw argumentError("snapshotId", `'${id}' is not a snapshot id`);
  return `/v1/snapshots/${encodeURIComponent(id)}`;
}
