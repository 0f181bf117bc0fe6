/** Sends calls over HTTP, with retries where they are safe. Modules describe a request as a {@link Call}. */

import { platform } from "#platform";
import { Attempt } from "./attempt.js";
import type { Failure, StreamedResponse } from "./attempt.js";
import { CallProgress } from "./call-progress.js";
import type { Repeatable } from "./call-progress.js";
import { Cleanups } from "./cleanup.js";
import { afterRepeats, errorOf, errorOfResponse, networkError, responseInfo } from "./error-classes.js";
import type { ResponseHead } from "./error-classes.js";
import { messageOf, SandboxdError } from "./errors.js";
import { Notices } from "./notices.js";
import type { Payload } from "./payload.js";
import { ConnectError, UpgradeRefused } from "./platform/types.js";
import type { Connections, HttpResponse, Socket } from "./platform/types.js";
import { RateQueue } from "./rate-queue.js";
import type { RetryPolicy } from "./retry.js";
import { resolveSettings } from "./settings.js";
import type { ClientOptions, Settings } from "./settings.js";
import { VERSION } from "./version.js";

const REFUSED =
  "no service answers there: check that it runs, which 'sandboxd serve' starts, and that the URL is right; " +
  "one that has just been started may prepare its images first";
const USER_AGENT = `sandboxd-typescript/${VERSION}`;

/** A request, for all attempts. Without a `patience` it waits for limits and for capacity, as long as the client allows. */
export interface Call extends Repeatable {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly payload?: Payload;
  /** Default: `application/json`. */
  readonly accept?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Overrides the timeout of the client. */
  readonly timeoutMs?: number;
  /** The longest that the call waits for limits and capacity. Default: that of the client. */
  readonly maxRetryWaitMs?: number;
  /** Whether the call counts against the rate limit of creates, so that it waits for its turn among them. */
  readonly isCreate?: boolean;
}

/** A successful attempt. */
interface Success<T> {
  readonly value: T;
  /** The number of further calls that the rate limit admits. */
  readonly remaining: number;
}

/** What all calls of a client share. */
export class Transport {
  readonly settings: Settings;
  readonly cleanups: Cleanups;
  readonly #connections: Connections;
  readonly #notices: Notices;
  readonly #creates = new RateQueue();

  constructor(options: ClientOptions) {
    this.settings = resolveSettings(options, platform);
    this.cleanups = new Cleanups(this.settings.log);
    this.#notices = new Notices(this.settings.log);
    this.#connections = platform.connect(this.settings.trust, options.fetch);
  }

  /** Sends a call and parses the response as JSON. */
  json<T>(call: Call): Promise<T> {
    return this.#sent(call, async (attempt, response) => {
      const text = await attempt.read(response.text());
      attempt.end();
      try {
        return JSON.parse(text) as T;
      } catch (error) {
        const { status, requestId } = responseInfo(response);
        const properties = { status, cause: this.settings.apiKey.maskedCause(error) };
        throw errorOf("UNKNOWN", "the response cannot be parsed", requestId === undefined ? properties : { ...properties, requestId });
      }
    });
  }

  /** Sends a call and returns the response with a streamed body, which has no timeout here. */
  stream(call: Call): Promise<StreamedResponse> {
    return this.#sent(call, (attempt, response) => Promise.resolve(attempt.streamed(response)));
  }

  /** Opens a websocket at `path`. Waits for limits, but does not retry: the terminal connects again by its own rules. */
  openSocket(path: string, signal?: AbortSignal): Promise<Socket> {
    const policy = { ...this.settings.policy, retries: 0 };
    return this.#repeated({ safety: "only_unstarted", signal }, policy, () => this.#upgraded(path, signal));
  }

  /** Closes the connections, after the clean-ups, which need them. */
  close(): void {
    this.cleanups.whenIdle(() => {
      this.#connections.close();
    });
  }

  #sent<T>(call: Call, read: (attempt: Attempt, response: HttpResponse) => Promise<T>): Promise<T> {
    const { policy } = this.settings;
    const maxRetryWaitMs = call.maxRetryWaitMs ?? policy.maxRetryWaitMs;
    return this.#repeated(call, { ...policy, maxRetryWaitMs }, () => this.#once(call, read));
  }

  /** Makes attempts, with waits and retries. */
  async #repeated<T>(
    call: Repeatable & Pick<Call, "isCreate" | "payload">,
    policy: RetryPolicy,
    once: () => Promise<Success<T> | Failure>,
  ): Promise<T> {
    const queue = call.isCreate === true ? this.#creates : undefined;
    const progress = new CallProgress(call, { policy, notices: this.#notices, queue });
    try {
      for (;;) {
        await progress.ready();
        const tried = await once();
        if ("value" in tried) {
          progress.succeeded(tried.remaining);
          return tried.value;
        }
        call.signal?.throwIfAborted();
        const canBeSent = call.payload?.canBeSent() ?? true;
        if (!progress.failed(tried, canBeSent)) throw afterRepeats(tried.error, progress.repeats);
      }
    } finally {
      progress.end();
    }
  }

  async #once<T>(
    call: Call,
    read: (attempt: Attempt, response: HttpResponse) => Promise<T>,
  ): Promise<Success<T> | Failure> {
    const { apiKey, serviceUrl, timeoutMs } = this.settings;
    const limitMs = call.timeoutMs ?? timeoutMs;
    const attempt = new Attempt(limitMs, call.signal);
    try {
      const body = call.payload?.body(attempt);
      const response = await this.#connections.send({
        method: call.method,
        url: serviceUrl.base + call.path,
        headers: this.#headers(call),
        signal: attempt.signal,
        ...(body === undefined ? {} : { body }),
      });
      this.#notices.ignoredFields(call.method, call.path, response.headers);
      if (response.status >= 200 && response.status < 300) {
        return { value: await read(attempt, response), remaining: remainingOf(response) };
      }
      return answered(response, apiKey.masked(await attempt.read(response.text())));
    } catch (error) {
      return this.#failure(error, attempt, limitMs);
    } finally {
      attempt.settle();
    }
  }

  async #upgraded(path: string, signal: AbortSignal | undefined): Promise<Success<Socket> | Failure> {
    const { serviceUrl, apiKey, timeoutMs } = this.settings;
    const timeout = AbortSignal.timeout(timeoutMs);
    const request = {
      url: serviceUrl.base + path,
      authorization: apiKey.authorization,
      userAgent: USER_AGENT,
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
    };
    try {
      return { value: await this.#connections.openSocket(request), remaining: 0 };
    } catch (error) {
      if (error instanceof UpgradeRefused) return answered(error, apiKey.masked(error.body));
      const cause = apiKey.maskedCause(error);
      const message = timeout.aborted
        ? `the websocket was not opened within ${timeoutMs} ms`
        : `cannot open a websocket at ${serviceUrl.base}: ${apiKey.masked(messageOf(error))}`;
      return { fault: { kind: "lost" }, error: networkError(message, cause) };
    }
  }

  #headers(call: Call): Record<string, string> {
    return {
      accept: call.accept ?? "application/json",
      "user-agent": USER_AGENT,
      authorization: this.settings.apiKey.authorization,
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
    const { apiKey, serviceUrl } = this.settings;
    const cause = apiKey.maskedCause(error);
    const message = `no response from ${serviceUrl.base}: ${apiKey.masked(messageOf(error))}`;
    if (!(error instanceof ConnectError)) return { fault: { kind: "lost" }, error: networkError(message, cause) };
    const advice = "this client does not trust the certificate: trust the service's certificate file or pin its fingerprint";
    const properties = error.isCertificate ? { details: { reason: "certificate" }, cause } : { cause };
    const isRefused = message.includes("ECONNREFUSED");
    const text = error.isCertificate ? `${message}; ${advice}` : isRefused ? `${message}; ${REFUSED}` : message;
    return { fault: { kind: "not_sent" }, error: errorOf("NETWORK_ERROR", text, properties) };
  }
}

/** The number of further requests that the nearest rate limit admits; 0 if the response does not say. */
function remainingOf(response: HttpResponse): number {
  const remaining = Number(response.headers.get("x-ratelimit-remaining") ?? 0);
  return Number.isSafeInteger(remaining) ? remaining : 0;
}

function answered(response: ResponseHead, body: string): Failure {
  const error = errorOfResponse(body, responseInfo(response));
  if (error.details.commandStarted === true) return { fault: { kind: "killed" }, error };
  return { fault: { kind: "answered", status: response.status, code: error.code }, error };
}
