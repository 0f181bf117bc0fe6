/** Exposed ports of a sandbox, and tokens for private ports. */

import { defined, idempotencyHeaders } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { randomId } from "./ids.js";
import type { ExposeBody, Port, PortClosed, PortList, PortToken, PortVisibility, TokenBody } from "./models.js";
import { jsonPayload } from "./payload.js";

/** Options of `expose`. */
export interface ExposeOptions extends CallOptions {
  /** Who can access the port. Default: `private`. */
  visibility?: PortVisibility;
  /** Whether a request through the port resumes a paused sandbox. Default: `true`. */
  autoResume?: boolean;
  /** A request with the same key within 24 hours returns the same response. */
  idempotencyKey?: string;
}

/** The ports of a sandbox. */
export class Ports {
  readonly #context: SandboxContext;

  constructor(context: SandboxContext) {
    this.#context = context;
  }

  /** Gives a port a URL. */
  async expose(port: number, options: ExposeOptions = {}): Promise<Port> {
    const { visibility, autoResume } = options;
    const exposed = await this.#context.json<Port>({
      method: "POST",
      path: this.#context.path("/ports"),
      safety: "repeatable",
      payload: jsonPayload(defined<ExposeBody>({ port, visibility, autoResume })),
      headers: idempotencyHeaders(options.idempotencyKey ?? randomId("key_")),
      signal: options.signal,
    });
    const data = { port: exposed.port, visibility: exposed.visibility, autoResume: exposed.autoResume };
    this.#context.record("port.exposed", data);
    return exposed;
  }

  /** Lists the exposed ports. */
  async list(options: CallOptions = {}): Promise<readonly Port[]> {
    const path = this.#context.path("/ports");
    const { signal } = options;
    return (await this.#context.json<PortList>({ method: "GET", path, safety: "repeatable", signal })).data;
  }

  /** Closes a port. Its tokens become invalid. */
  async close(port: number, options: CallOptions = {}): Promise<PortClosed> {
    const path = this.#context.path(`/ports/${port}`);
    const { signal } = options;
    const closed = await this.#context.json<PortClosed>({ method: "DELETE", path, safety: "after_answer", signal });
    this.#context.record("port.closed", { port, reason: "request" });
    return closed;
  }

  /** Creates a token for a private port. Default lifetime: an hour. */
  token(port: number, options: CallOptions & { expiresInMs?: number } = {}): Promise<PortToken> {
    return this.#context.json({
      method: "POST",
      path: this.#context.path(`/ports/${port}/token`),
      // Tokens are not stored, so creating another is harmless.
      safety: "repeatable",
      payload: jsonPayload(defined<TokenBody>({ expiresInMs: options.expiresInMs })),
      signal: options.signal,
    });
  }
}
