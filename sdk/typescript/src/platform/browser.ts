/** The platform module for browsers, and for runtimes without one of their own. */

import { configurationError } from "../error-classes.js";
import { FetchConnections, openWebSocket } from "./fetch.js";
import type { Platform } from "./types.js";

function unavailable(what: string): Error {
  return configurationError(`${what} is not available in this runtime`);
}

/** Browsers: no files, no environment, and only certificates that the browser trusts. */
export const platform: Platform = {
  environment: () => undefined,
  readTextFile: () => {
    throw unavailable("reading files");
  },
  appendToFile: () => {
    throw unavailable("writing files");
  },
  connect: (trust, fetch) => {
    if (trust.kind !== "system") throw unavailable("trusting a given certificate");
    return new FetchConnections(fetch ?? globalThis.fetch.bind(globalThis), openWebSocket);
  },
};
