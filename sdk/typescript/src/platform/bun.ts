/** The platform module for Bun, whose fetch and WebSocket accept TLS options. */

import { createHash } from "node:crypto";
import { appendFileSync, readFileSync } from "node:fs";
import process from "node:process";
import { FetchConnections, openWebSocket } from "./fetch.js";
import type { Fetch, Platform, Trust } from "./types.js";

interface BunTls {
  ca?: string;
  rejectUnauthorized?: boolean;
  checkServerIdentity?: (host: string, certificate: { raw: Uint8Array }) => Error | undefined;
}

type BunWebSocket = new (url: string, options: { protocols: string[]; tls: BunTls }) => WebSocket;

/** Bun: files, environment, and connections that can trust a given certificate. */
export const platform: Platform = {
  environment: (name) => process.env[name],
  readTextFile: (path) => readFileSync(path, "utf8"),
  appendToFile: (path, text) => {
    appendFileSync(path, text);
  },
  connect: (trust, fetch) => {
    const tls = tlsOf(trust);
    const withTls: Fetch = (url, init) => globalThis.fetch(url, { ...init, tls } as RequestInit);
    return new FetchConnections(fetch ?? withTls, (request) => {
      const create = (url: string, protocols: string[]): WebSocket =>
        new (globalThis.WebSocket as unknown as BunWebSocket)(url, { protocols, tls });
      return openWebSocket(request, create);
    });
  },
};

function tlsOf(trust: Trust): BunTls {
  switch (trust.kind) {
    case "system":
      return {};
    case "certificates":
      return { ca: trust.pem };
    case "pinned":
      return {
        rejectUnauthorized: false,
        checkServerIdentity: (_, { raw }) => {
          const shown = createHash("sha256").update(raw).digest("hex");
          return shown === trust.sha256 ? undefined : new Error(`the certificate has the fingerprint sha256:${shown}`);
        },
      };
  }
}
