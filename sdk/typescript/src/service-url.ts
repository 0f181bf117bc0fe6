/** The base URL of the service. Plain HTTP is allowed to loopback addresses only, because it would expose the key. */

import { configurationError } from "./error-classes.js";

/** A parsed base URL. */
export interface ServiceUrl {
  readonly isTls: boolean;
  /** Whether the host is this machine. */
  readonly isLocal: boolean;
  /** The URL without a trailing slash; paths are appended to it. */
  readonly base: string;
}

/** Parses a base URL. */
export function parseServiceUrl(text: string): ServiceUrl {
  const fault = (why: string): Error =>
    configurationError(`the URL '${shown(text)}' ${why}; expected a URL such as https://sandboxes.example.com`);
  const trimmed = text.trim();
  if (!/^https?:\/\//i.test(trimmed)) throw fault("does not begin with https://");
  let url: URL;
  try {
    url = new URL(trimmed);
  } catch {
    throw fault("is not a URL");
  }
  if (url.search !== "" || trimmed.includes("?")) throw fault("has a query");
  if (url.username !== "" || url.password !== "" || /^[^/]*\/\/[^/]*@/.test(trimmed)) {
    throw fault("contains a user name, but the service accepts only API keys");
  }
  const isTls = url.protocol === "https:";
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const isLocal = host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);
  if (!isTls && !isLocal) {
    throw fault("would send the key unencrypted; plain HTTP is allowed only for this machine");
  }
  const port = url.port === "" ? (isTls ? "443" : "80") : url.port;
  const prefix = url.pathname.replace(/\/+$/, "");
  return { isTls, isLocal, base: `${url.protocol}//${url.hostname}:${port}${prefix}` };
}

/** The URL without the parts in which a key may be: a user with a password, and a query. */
function shown(text: string): string {
  return text.replace(/^(\w+:\/\/)?.*@/s, "$1…@").replace(/[?#].*$/s, "?…");
}
