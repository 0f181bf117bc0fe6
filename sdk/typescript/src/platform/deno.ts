/** The platform module for Deno, whose HTTP client accepts certificate authorities. */

import { configurationError } from "../error-classes.js";
import { FetchConnections, openWebSocket } from "./fetch.js";
import { packContext } from "./node-context.js";
import { packDirectory } from "./node-pack.js";
import { unpackDirectory } from "./node-unpack.js";
import type { Fetch, Platform, Trust } from "./types.js";

interface DenoNamespace {
  readonly env: { get(name: string): string | undefined };
  readTextFileSync(path: string): string;
  writeTextFileSync(path: string, text: string, options: { append: boolean }): void;
  createHttpClient(options: { caCerts: string[] }): unknown;
}

function deno(): DenoNamespace {
  return (globalThis as unknown as { Deno: DenoNamespace }).Deno;
}

/** Deno: files and environment where permitted, and connections that can trust a given certificate, except websockets. */
export const platform: Platform = {
  environment: (name) => {
    try {
      return deno().env.get(name);
    } catch {
      // Without the permission the variable counts as absent.
      return undefined;
    }
  },
  readTextFile: (path) => deno().readTextFileSync(path),
  appendToFile: (path, text) => {
    deno().writeTextFileSync(path, text, { append: true });
  },
  directories: { pack: packDirectory, packContext, unpack: unpackDirectory },
  connect: (trust, fetch) => new FetchConnections(fetch ?? fetchWith(trust), openWebSocket),
};

function fetchWith(trust: Trust): Fetch {
  switch (trust.kind) {
    case "system":
      return globalThis.fetch.bind(globalThis);
    case "certificates":
      return fetchTrusting(trust.pem);
    case "pinned":
      if (trust.pem !== undefined) return fetchTrusting(trust.pem);
      throw configurationError("Deno cannot pin a fingerprint; use the option certificate");
  }
}

function fetchTrusting(pem: string): Fetch {
  const client = deno().createHttpClient({ caCerts: [pem] });
  return (url, init) => globalThis.fetch(url, { ...init, client } as RequestInit);
}
