/** Sends calls over HTTP, with retries where they are safe. Modules describe a request as a {@link Call}. */

import { platform } from "#platform";
import { Attempt, sleep } from "./attempt.js";
import type { Failure, StreamedResponse } from "./attempt.js";
import { Cleanups } from "./cleanup.js";
import { afterRepeats, errorOf, errorOfResponse, networkError, responseInfo } from "./error-classes.js";
import { messageOf, SandboxdError } from "./errors.js";
import type { Payload } from "./payload.js";
import { ConnectError, UpgradeRefused } from "./platform/types.js";
import type { Connections, HttpResponse, Socket } from "./platform/types.js";
import { mayRepeat, retryWaitMs } from "./retry.js";
import type { Safety } from "./retry.js";
import { resolveSettings } from "./settings.js";
import type { ClientOptions, Settings } from "./settings.js";
import { VERSION } from "./version.js";

const USER_AGENT = `sandboxd-typescript/${VERSION}`;

/** A request, for all attempts. */
export interface Call {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly safety: Safety;
  readonly payload?: Payload;
  /** Default: `application/json`. */
  readonly accept?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Overrides the timeout of the client. */
  readonly timeoutMs?: number;
  /** The caller handles `RESOURCE_EXHAUSTED`: it is not retried. */
  readonly isImpatient?: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** What all calls of a client share. */
export class Transport {
  readonly settings: Settings;
  readonly cleanups = new Cleanups();
  readonly #connections: Connections;

  constructor(options: ClientOptions) {
    this.settings = resolveSettings(options, platform);
    this.#connections = platform.connect(this.settings.trust, options.fetch);
  }

  /** Sends a call and parses the response as JSON. */
  json<T>(call: Call): Promise<T> {
    return this.#repeated(call, async (attempt, response) => {
      const text = await attempt.read(response.text());
      attempt.end();
      try {
        return JSON.parse(text) as T;
      } catch (cause) {
        const { status, requestId } = responseInfo(response);
        const properties = requestId === undefined ? { status, cause } : { status, requestId, cause };
        throw errorOf("UNKNOWN", "the response cannot be parsed", properties);
      }
    });
  }

  /** Sends a call and returns the response with a streamed body, which has no timeout here. */
  stream(call: Call): Promise<StreamedResponse> {
    return this.#repeated(call, (attempt, response) => Promise.resolve(attempt.streamed(response)));
  }

  /** Opens a websocket at `path`. */
  async openSocket(path: string, signal?: AbortSignal): Promise<Socket> {
    const { serviceUrl, apiKey, timeoutMs } = this.settings;
    signal?.throwIfAborted();
    const timeout = AbortSignal.timeout(timeoutMs);
    const request = {
      url: serviceUrl.base + path,
      authorization: `Bearer ${apiKey}`,
      userAgent: USER_AGENT,
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
    };
    try {
      return await this.#connections.openSocket(request);
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof UpgradeRefused) throw errorOfResponse(error.body, responseInfo(error));
      if (timeout.aborted) throw networkError(`the websocket was not opened within ${timeoutMs} ms`, error);
      const message = `cannot open a websocket at ${serviceUrl.base}: ${messageOf(error)}`;
      throw networkError(message, error);
    }
  }

  /** Closes the connections, after the clean-ups, which need them. */
  close(): void {
    this.cleanups.whenIdle(() => {
      this.#connections.close();
    });
  }

  /** Sends a call with retries. */
  async #repeated<T>(call: Call, read: (attempt: Attempt, response: HttpResponse) => Promise<T>): Promise<T> {
    for (let repeats = 0; ; repeats++) {
      call.signal?.throwIfAborted();
      const tried = await this.#once(call, read);
      if ("value" in tried) return tried.value;
      call.signal?.throwIfAborted();
      const { fault, error } = tried;
      const isForTheCaller = call.isImpatient === true && error.code === "RESOURCE_EXHAUSTED";
      const again = mayRepeat(call.safety, fault) && (call.payload?.canBeSent() ?? true) && !isForTheCaller;
      const { policy } = this.settings;
      const wait = again ? retryWaitMs(policy, repeats + 1, error.retryAfterMs, Math.random()) : undefined;
      if (wait === undefined) throw afterRepeats(error, repeats);
      await sleep(wait, call.signal);
    }
  }

  async #once<T>(
    call: Call,
    read: (attempt: Attempt, response: HttpResponse) => Promise<T>,
  ): Promise<{ value: T } | Failure> {
    const limitMs = call.timeoutMs ?? this.settings.timeoutMs;
    const attempt = new Attempt(limitMs, call.signal);
    try {
      const body = call.payload?.body(attempt);
      const response = await this.#connections.send({
        method: call.method,
        url: this.settings.serviceUrl.base + call.path,
        headers: this.#headers(call),
        signal: attempt.signal,
        ...(body === undefined ? {} : { body }),
      });
      if (response.status >= 200 && response.status < 300) return { value: await read(attempt, response) };
      return answered(response, await attempt.read(response.text()));
    } catch (error) {
      return this.#failure(error, attempt, limitMs);
    } finally {
      attempt.settle();
    }
  }

  #headers(call: Call): Record<string, string> {
    return {
      accept: call.accept ?? "application/json",
      "user-agent": USER_AGENT,
      authorization: `Bearer ${this.settings.apiKey}`,
      ...(call.payload === undefined ? {} : { "content-type": call.payload.contentType }),
      ...call.headers,
    };
  }

  #failure(error: unknown, attempt: Attempt, limitMs: number): Failure {
    if (attempt.sourceError !== undefined) {
      const message = messageOf(attempt.sourceError);
      return { fault: { kind: "no_content" }, error: errorOf("LOCAL_FILE", message, { cause: error }) };
    }
    if (attempt.isTimedOut) {
      return { fault: { kind: "lost" }, error: networkError(`no response within ${limitMs} ms`) };
    }
    if (error instanceof SandboxdError) return { fault: { kind: "lost" }, error };
    const message = `no response from ${this.settings.serviceUrl.base}: ${messageOf(error)}`;
    if (!(error instanceof ConnectError)) return { fault: { kind: "lost" }, error: networkError(message, error) };
    const advice = "this client does not trust the certificate: trust the service's certificate file or pin its fingerprint";
    const properties = error.isCertificate ? { details: { reason: "certificate" }, cause: error } : { cause: error };
    const text = error.isCertificate ? `${message}; ${advice}` : message;
    return { fault: { kind: "not_sent" }, error: errorOf("NETWORK_ERROR", text, properties) };
  }
}

function answered(response: HttpResponse, body: string): Failure {
  const error = errorOfResponse(body, responseInfo(response));
  if (error.details.commandStarted === true) return { fault: { kind: "killed" }, error };
  return { fault: { kind: "answered", status: response.status, code: error.code }, error };
}
