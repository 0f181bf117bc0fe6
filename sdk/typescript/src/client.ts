/** The client: a service URL with an API key. */

import { metadataQuery, queryString } from "./context.js";
import type { CallOptions } from "./context.js";
import { Events } from "./events.js";
import type { Health, ImageView, InfoView, SandboxItem, SandboxState, UsageView } from "./models.js";
import { LARGEST_PAGE, PagedList } from "./paging.js";
import type { Page } from "./paging.js";
import { createSandbox, sandboxHandle } from "./sandbox.js";
import type { CreateOptions, Sandbox } from "./sandbox.js";
import type { ClientOptions } from "./settings.js";
import { Snapshots } from "./snapshots.js";
import { Templates } from "./templates.js";
import { Transport } from "./transport.js";

/** Filters of sandboxes. */
export interface ListSandboxesOptions extends CallOptions {
  state?: SandboxState;
  image?: string;
  /** Tags that a sandbox must have, all of them. */
  metadata?: Readonly<Record<string, string>>;
  /** The number of sandboxes of a request: 1 to 100. Default: 100. */
  pageSize?: number;
}

/** The sandboxes of the account. */
export class Sandboxes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a sandbox. `image` is the name of an image or template, or the id of a snapshot or template. Aborting the call throws
   * at once and terminates the sandbox in the background, unless the caller gave an `idempotencyKey`.
   */
  create(image: string, options: CreateOptions = {}): Promise<Sandbox> {
    return createSandbox(this.#transport, image, options);
  }

  /** Returns a sandbox with its current state. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const sandbox = this.connect(id);
    await sandbox.refresh(options);
    return sandbox;
  }

  /** An object for a sandbox. Sends no request, so the sandbox need not exist. */
  connect(id: string): Sandbox {
    return sandboxHandle(this.#transport, id);
  }

  /** Lists sandboxes, newest first. */
  list(options: ListSandboxesOptions = {}): PagedList<SandboxItem> {
    const { state, image, metadata, signal, pageSize = LARGEST_PAGE } = options;
    return new PagedList(
      (offset) => {
        const query = { state, image, limit: pageSize, offset, ...metadataQuery(metadata) };
        const path = `/v1/sandboxes${queryString(query)}`;
        return this.#transport.json<Page<SandboxItem>>({ method: "GET", path, safety: "repeatable", signal });
      },
      (item) => item.id,
    );
  }
}

/** The images of the service. */
export class Images {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists the images, with the progress of pulls. */
  list(options: CallOptions = {}): PagedList<ImageView> {
    return new PagedList(
      (offset) => this.#page({ limit: LARGEST_PAGE, offset }, options),
      (image) => image.name,
    );
  }

  /** Returns an image, or `undefined` if it is neither stored nor being pulled. */
  async get(name: string, options: CallOptions = {}): Promise<ImageView | undefined> {
    const page = await this.#page({ name }, options);
    return page.data.find((image) => image.name === name);
  }

  #page(query: Parameters<typeof queryString>[0], { signal }: CallOptions): Promise<Page<ImageView>> {
    const path = `/v1/images${queryString(query)}`;
    return this.#transport.json({ method: "GET", path, safety: "repeatable", signal });
  }
}

/** A client of the service. Without options, its settings come from the environment or from the local daemon. */
export class Sandboxd implements Disposable {
  readonly sandboxes: Sandboxes;
  readonly images: Images;
  readonly snapshots: Snapshots;
  readonly templates: Templates;
  readonly events: Events;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.sandboxes = new Sandboxes(this.#transport);
    this.images = new Images(this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.templates = new Templates(this.#transport);
    this.events = new Events(this.#transport);
  }

  /** The URL of the service. */
  get url(): string {
    return this.#transport.settings.serviceUrl.base;
  }

  /** Returns the version, the isolation backends and the limits of the service. */
  info(options: CallOptions = {}): Promise<InfoView> {
    return this.#get("/v1/info", options);
  }

  /** Returns what the account uses, and what the operator allows it. */
  usage(options: CallOptions = {}): Promise<UsageView> {
    return this.#get("/v1/usage", options);
  }

  /** Returns the health of the service. */
  health(options: CallOptions = {}): Promise<Health> {
    return this.#get("/v1/health", options);
  }

  /** Returns the OpenAPI document of the service. */
  openapi(options: CallOptions = {}): Promise<Readonly<Record<string, unknown>>> {
    return this.#get("/v1/openapi.json", options);
  }

  /** Closes the connections: at once, or after the clean-up of aborted creates, forks and builds: at most 30 seconds later. */
  close(): void {
    this.#transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #get<T>(path: string, { signal }: CallOptions): Promise<T> {
    return this.#transport.json<T>({ method: "GET", path, safety: "repeatable", signal });
  }
}
