/** Client settings: from code, from the environment, or from the files of the local daemon. */

import { ApiKey } from "./api-key.js";
import { configurationError } from "./error-classes.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import type { RetryPolicy } from "./retry.js";
import { parseServiceUrl } from "./service-url.js";
import type { ServiceUrl } from "./service-url.js";
import type { Fetch, Trust } from "./platform/types.js";
import { millisecondsOf } from "./units.js";
import type { Duration } from "./units.js";

const LOCAL_URL = "https://127.0.0.1:8443";
const LOCAL_DATA_DIR = "/var/lib/sandboxd";
const LOCAL_KEY = "local.key";
const LOCAL_SERVICE = "local.json";
const LOCAL_CERTIFICATE = "tls/tls-cert.pem";
const TIMEOUT_MS = 30_000;
const RETRIES = 2;
/** Enough for a hundred creates under the default of the service, ten a minute. */
const MAX_RETRY_WAIT_MS = 600_000;

/** Receives warnings and notices: a text, and the error that it is about. */
export type Log = (message: string, error?: unknown) => void;

/** The settings of a client. All are optional: absent ones come from the environment, or from the local daemon. */
export interface ClientOptions {
  /** The URL of the service. Default: `SANDBOXD_URL`, or the local daemon. */
  url?: string;
  /** The API key. Default: `SANDBOXD_API_KEY`, or the key file of the local daemon. */
  apiKey?: string;
  /** The certificate to trust: PEM text, or the path of a PEM file. Default: `SANDBOXD_CERTIFICATE`. */
  certificate?: string;
  /** The SHA-256 fingerprint of the only certificate to trust. */
  fingerprint?: string;
  /** Trusts the certificate authorities of this machine, also for a local service. */
  systemCertificates?: boolean;
  /** The data directory of the local daemon. Default: `SANDBOXD_DATA_DIR`, or `/var/lib/sandboxd`. */
  dataDir?: string;
  /** How long a response may take, for commands in addition to the command's own timeout. Default: 30,000. */
  timeoutMs?: number;
  /** The same as a text with its unit, such as `60s`. */
  timeout?: Duration;
  /** The number of retries where they are safe. Default: 2. */
  retries?: number;
  /**
   * How long a call waits, in all, when the service refuses it because of a limit or for lack of capacity and says when to come
   * back. A call that would wait longer fails at once; 0 disables waiting. Default: 600,000, ten minutes.
   */
  maxRetryWaitMs?: number;
  /** The same as a text with its unit, such as `5m`. */
  maxRetryWait?: Duration;
  /** Receives warnings, and a notice when calls wait for a limit. Default: `console.warn`. */
  log?: Log;
  /** The function to send requests with, instead of that of the runtime. */
  fetch?: Fetch;
}

const OPTIONS: OptionNames<ClientOptions> = {
  ...{ url: true, apiKey: true, certificate: true, fingerprint: true, systemCertificates: true, dataDir: true, timeoutMs: true },
  ...{ timeout: true, retries: true, maxRetryWaitMs: true, maxRetryWait: true, log: true, fetch: true },
};

/** Complete settings. */
export interface Settings {
  readonly serviceUrl: ServiceUrl;
  readonly apiKey: ApiKey;
  readonly trust: Trust;
  readonly timeoutMs: number;
  readonly policy: RetryPolicy;
  readonly log: Log;
}

/** Where settings come from besides the code. */
export interface SettingsSource {
  environment(name: string): string | undefined;
  readTextFile(path: string): string;
}

/** Completes the options of a client. */
export function resolveSettings(options: ClientOptions, source: SettingsSource): Settings {
  checkNames(options, OPTIONS);
  const variable = (name: string): string | undefined => {
    const value = source.environment(name);
    return value === undefined || value.trim() === "" ? undefined : value;
  };
  const dataDir = options.dataDir ?? variable("SANDBOXD_DATA_DIR") ?? LOCAL_DATA_DIR;
  const givenUrl = options.url ?? variable("SANDBOXD_URL");
  const local = givenUrl === undefined ? localService(dataDir, source) : undefined;
  const serviceUrl = parseServiceUrl(givenUrl ?? local?.url ?? LOCAL_URL);
  const isHere = local !== undefined || serviceUrl.isLocal;
  const findKey = (): string => (isHere ? localKey(dataDir, source) : noKey(serviceUrl));
  const apiKey = (options.apiKey ?? variable("SANDBOXD_API_KEY") ?? findKey()).trim();
  if (!/^[\x20-\x7e]*$/.test(apiKey)) {
    throw configurationError("the API key has characters that are not allowed in keys");
  }
  const certificate = options.certificate ?? variable("SANDBOXD_CERTIFICATE");
  return {
    serviceUrl,
    apiKey: new ApiKey(apiKey),
    trust: serviceUrl.isTls ? trustOf({ ...options, certificate, dataDir, local }, serviceUrl, source) : { kind: "system" },
    timeoutMs: millisecondsOf("timeout", options.timeout, options.timeoutMs) ?? TIMEOUT_MS,
    policy: {
      retries: options.retries ?? RETRIES,
      maxRetryWaitMs: millisecondsOf("maxRetryWait", options.maxRetryWait, options.maxRetryWaitMs) ?? MAX_RETRY_WAIT_MS,
    },
    log: options.log ?? warn,
  };
}

/** Writes to the console, with an error as a value of its own so that the console shows all of it. */
function warn(message: string, error?: unknown): void {
  if (error === undefined) console.warn(message);
  else console.warn(message, error);
}

interface TrustOptions {
  readonly certificate?: string | undefined;
  readonly fingerprint?: string;
  readonly systemCertificates?: boolean;
  readonly dataDir: string;
  readonly local: LocalService | undefined;
}

/** How to reach the daemon of a data directory, as it describes itself when it starts. */
interface LocalService {
  readonly url: string;
  /** The only certificate to trust; absent without TLS. */
  readonly trust: Trust | undefined;
}

function trustOf(options: TrustOptions, serviceUrl: ServiceUrl, source: SettingsSource): Trust {
  if (options.systemCertificates === true) return { kind: "system" };
  if (options.fingerprint !== undefined) return { kind: "pinned", sha256: parseFingerprint(options.fingerprint) };
  const { certificate } = options;
  if (certificate !== undefined) {
    const isText = certificate.includes("-----BEGIN");
    const pem = isText ? certificate : read(certificate, source);
    if (!isPem(pem)) {
      const what = isText ? "the text to trust" : certificate;
      throw configurationError(`${what} contains no PEM certificate (-----BEGIN CERTIFICATE-----)`);
    }
    return { kind: "certificates", pem };
  }
  if (options.local?.trust !== undefined) return options.local.trust;
  return serviceUrl.isLocal ? localTrust(options.dataDir, source) : { kind: "system" };
}

/** The daemon of this directory; undefined if there is no description that this user can read. */
function localService(dataDir: string, source: SettingsSource): LocalService | undefined {
  const file = `${dataDir}/${LOCAL_SERVICE}`;
  const text = readIfPossible(file, source);
  if (text === undefined) return undefined;
  try {
    const { url, certificate, fingerprint } = JSON.parse(text) as Record<string, unknown>;
    if (typeof url !== "string") throw new TypeError("the URL is not a text");
    if (fingerprint === undefined) return { url, trust: undefined };
    if (typeof fingerprint !== "string") throw new TypeError("the fingerprint is not a text");
    const sha256 = parseFingerprint(fingerprint);
    const pem = typeof certificate === "string" ? readIfPossible(certificate, source) : undefined;
    return { url, trust: { kind: "pinned", sha256, ...(pem === undefined ? {} : { pem }) } };
  } catch (error) {
    throw configurationError(`${file} is malformed; a restart of the daemon writes it again`, error);
  }
}

/** Trusts the self-signed certificate of the local daemon if its directory is readable. */
function localTrust(dataDir: string, source: SettingsSource): Trust {
  const pem = readIfPossible(`${dataDir}/${LOCAL_CERTIFICATE}`, source);
  return pem !== undefined && isPem(pem) ? { kind: "certificates", pem } : { kind: "system" };
}

const HOW_TO_SET_KEY = "set SANDBOXD_API_KEY or the option apiKey";

function noKey(serviceUrl: ServiceUrl): never {
  throw configurationError(`no API key for ${serviceUrl.base}; ${HOW_TO_SET_KEY}`);
}

function localKey(dataDir: string, source: SettingsSource): string {
  const file = `${dataDir}/${LOCAL_KEY}`;
  try {
    return source.readTextFile(file);
  } catch (error) {
    const what =
      `no API key; ${HOW_TO_SET_KEY}. The key of the local daemon cannot be read: ${file}; wait for 'sandboxd is ready' if ` +
      "the daemon is starting for the first time, set SANDBOXD_DATA_DIR if the daemon has another data directory, and SANDBOXD_URL " +
      "for a service on another machine";
    throw configurationError(what, error);
  }
}

function readIfPossible(file: string, source: SettingsSource): string | undefined {
  try {
    return source.readTextFile(file);
  } catch {
    return undefined;
  }
}

function read(file: string, source: SettingsSource): string {
  try {
    return source.readTextFile(file);
  } catch (error) {
    throw configurationError(`cannot read ${file}`, error);
  }
}

function isPem(text: string): boolean {
  return /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/.test(text);
}

/** The digits of a fingerprint, as written by this project (`sha256:…`) or by openssl (`0F:…`). */
function parseFingerprint(text: string): string {
  const digits = text.replace(/^sha256:/, "").replaceAll(":", "").toLowerCase();
  if (!/^[0-9a-f]{64}$/.test(digits)) {
    throw configurationError("a fingerprint is 'sha256:' and 64 hexadecimal digits");
  }
  return digits;
}
