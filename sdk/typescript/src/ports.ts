/** Exposed ports of a sandbox, and tokens for private ports. */

import { defined, idempotencyHeaders, signalOf } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { Described } from "./described.js";
import { randomId } from "./ids.js";
import type { ExposeBody, Port, PortClosed, PortList, PortToken, PortVisibility, TokenBody } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { jsonPayload } from "./payload.js";
import { millisecondsOf } from "./units.js";
import type { Duration } from "./units.js";

/** Options of `expose`. */
export interface ExposeOptions extends CallOptions {
  /** Who can access the port. Default: `private`. */
  visibility?: PortVisibility;
  /** Whether a request through the port resumes a paused sandbox. Default: `true`. */
  autoResume?: boolean;
  /** A request with the same key within 24 hours returns the same response. */
  idempotencyKey?: string;
}

/** Options of `token`. */
export interface TokenOptions extends CallOptions {
  /** The lifetime of the token in ms. Default: 3,600,000, an hour; at most a week. */
  expiresInMs?: number;
  /** The same as a text with its unit, such as `30m`. */
  expiresIn?: Duration;
}

const EXPOSE: OptionNames<ExposeOptions> = { visibility: true, autoResume: true, idempotencyKey: true, signal: true };
const TOKEN: OptionNames<TokenOptions> = { expiresInMs: true, expiresIn: true, signal: true };

/** The ports of a sandbox. */
export class Ports extends Described {
  readonly #context: SandboxContext;

  /** For `Sandbox.ports`. */
  constructor(context: SandboxContext) {
    super();
    this.#context = context;
  }

  /** Gives a port a URL. */
  async expose(port: number, options: ExposeOptions = {}): Promise<Port> {
    const { visibility, autoResume } = checkNames(options, EXPOSE);
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
    const signal = signalOf(options);
    return (await this.#context.json<PortList>({ method: "GET", path, safety: "repeatable", signal })).data;
  }

  /** Closes a port. Its tokens become invalid. */
  async close(port: number, options: CallOptions = {}): Promise<PortClosed> {
    const path = this.#context.path(`/ports/${port}`);
    const signal = signalOf(options);
    const closed = await this.#context.json<PortClosed>({ method: "DELETE", path, safety: "after_answer", signal });
    this.#context.record("port.closed", { port, reason: "request" });
    return closed;
  }

  /** Creates a token for a private port. Default lifetime: an hour. */
  async token(port: number, options: TokenOptions = {}): Promise<PortToken> {
    const { expiresIn, expiresInMs, signal } = checkNames(options, TOKEN);
    const body = defined<TokenBody>({ expiresInMs: millisecondsOf("expiresIn", expiresIn, expiresInMs) });
    return this.#context.json({
      method: "POST",
      path: this.#context.path(`/ports/${port}/token`),
      // Tokens are not stored, so creating another is harmless.
      safety: "repeatable",
      payload: jsonPayload(body),
      signal,
    });
  }

  protected describe(): object {
    return { sandbox: this.#context.id };
  }
}
