/** The client: a service URL with an API key. */

import { queryString, signalOf } from "./context.js";
import type { CallOptions, Query } from "./context.js";
import type { CreateOptions } from "./create.js";
import { Described } from "./described.js";
import { Events } from "./events.js";
import type { Health, ImageView, InfoView, SandboxItem, UsageView } from "./models.js";
import { LARGEST_PAGE, PagedList } from "./paging.js";
import type { Page } from "./paging.js";
import { createSandbox, sandboxHandle } from "./sandbox.js";
import type { Sandbox } from "./sandbox.js";
import { listSandboxes } from "./sandbox-list.js";
import type { ListSandboxesOptions } from "./sandbox-list.js";
import type { ClientOptions } from "./settings.js";
import { Snapshots } from "./snapshots.js";
import { Templates } from "./templates.js";
import { Transport } from "./transport.js";

/** The sandboxes of the account. */
export class Sandboxes extends Described {
  readonly #transport: Transport;

  /** For `Sandboxd.sandboxes`. */
  constructor(transport: Transport) {
    super();
    this.#transport = transport;
  }

  /**
   * Creates a sandbox and returns it when it runs. `image` is the name of an image or template, or the id of a snapshot or template.
   * From a snapshot the sandbox has the files, and not the `env`, `workdir`, `metadata` or `egress` of the other sandbox.
   * Aborting the call throws at once and terminates the sandbox in the background, unless the caller gave an `idempotencyKey`.
   *
   * If the service refuses the create because of a rate limit or for lack of capacity, the call waits as long as the service asks it
   * to, at most `maxRetryWait` of the client in all, and logs once which limit it is. Creates of this client that wait are sent in
   * the order in which they were made.
   */
  create(image: string, options: CreateOptions = {}): Promise<Sandbox> {
    return createSandbox(this.#transport, image, options);
  }

  /** Returns a sandbox with its current state, by its id or its name. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const sandbox = this.connect(id);
    await sandbox.refresh(options);
    return sandbox;
  }

  /**
   * An object for a sandbox, by its id or its name. Sends no request, so the sandbox need not exist. With a name each call is for the
   * sandbox that has it at that time, until {@link Sandbox.refresh} fetches the id.
   */
  connect(id: string): Sandbox {
    return sandboxHandle(this.#transport, id);
  }

  /**
   * Lists the live sandboxes: the running ones, newest first, and then the paused ones. With a `state` it lists those in that state,
   * with `all` also those that were terminated, as long as the service keeps their records.
   */
  list(options: ListSandboxesOptions = {}): PagedList<SandboxItem> {
    return listSandboxes(this.#transport, options);
  }

  protected describe(): object {
    return {};
  }
}

/** The images of the service. */
export class Images extends Described {
  readonly #transport: Transport;

  /** For `Sandboxd.images`. */
  constructor(transport: Transport) {
    super();
    this.#transport = transport;
  }

  /** Lists the images, with the progress of pulls. */
  list(options: CallOptions = {}): PagedList<ImageView> {
    const signal = signalOf(options);
    return new PagedList(
      (offset) => this.#page({ limit: LARGEST_PAGE, offset }, signal),
      (image) => image.name,
    );
  }

  /** Returns an image, by any form of its name, or `undefined` if it is neither stored nor being pulled. */
  async get(name: string, options: CallOptions = {}): Promise<ImageView | undefined> {
    const { data } = await this.#page({ name }, signalOf(options));
    // The service may list the image under the complete form of its name.
    return data.find((image) => image.name === name) ?? data[0];
  }

  protected describe(): object {
    return {};
  }

  #page(query: Query, signal: AbortSignal | undefined): Promise<Page<ImageView>> {
    const path = `/v1/images${queryString(query)}`;
    return this.#transport.json({ method: "GET", path, safety: "repeatable", signal });
  }
}

/**
 * A client of the service. Without options, its settings come from the environment or from the local daemon. `Sandbox.create` is
 * shorter where one client with these settings is enough.
 *
 * @example
 * ```ts
 * using client = new Sandboxd({ url: "https://sandboxes.example.com", apiKey: process.env.KEY });
 * await using sandbox = await client.sandboxes.create("ubuntu:24.04");
 * ```
 */
export class Sandboxd extends Described implements Disposable {
  /** The sandboxes of the account: creating, finding and listing them. */
  readonly sandboxes: Sandboxes;
  /** The images of the service. */
  readonly images: Images;
  /** The snapshots of the account. */
  readonly snapshots: Snapshots;
  /** The templates of the account, and their builds. */
  readonly templates: Templates;
  /** The events of the account. */
  readonly events: Events;
  readonly #transport: Transport;

  /** Makes a client; sends no request. Throws {@link ConfigurationError} if a setting is missing or malformed. */
  constructor(options: ClientOptions = {}) {
    super();
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

  /**
   * Closes the connections: at once, or after the clean-up of aborted creates, forks, builds and commands. That takes at most 30
   * seconds, not counting waits for rate limits.
   */
  close(): void {
    this.#transport.close();
  }

  /** Closes the connections at the end of a `using` block, as `close` does. */
  [Symbol.dispose](): void {
    this.close();
  }

  protected describe(): object {
    return { url: this.url };
  }

  async #get<T>(path: string, options: CallOptions): Promise<T> {
    const signal = signalOf(options);
    return this.#transport.json<T>({ method: "GET", path, safety: "repeatable", signal });
  }
}
