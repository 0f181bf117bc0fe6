/** The platform module for Node, and for Bun, whose fetch cannot pin a certificate. */

import { appendFileSync, readFileSync } from "node:fs";
import process from "node:process";
import { FetchConnections } from "./fetch.js";
import { NodeHttp } from "./node-http.js";
import { openNodeSocket } from "./node-websocket.js";
import { packContext } from "./node-context.js";
import { packDirectory } from "./node-pack.js";
import { unpackDirectory } from "./node-unpack.js";
import type { Connections, Platform, Trust } from "./types.js";

/** Node and Bun: files, environment, and connections that can trust a given certificate. */
export const platform: Platform = {
  environment: (name) => process.env[name],
  readTextFile: (path) => readFileSync(path, "utf8"),
  appendToFile: (path, text) => {
    appendFileSync(path, text);
  },
  directories: { pack: packDirectory, packContext, unpack: unpackDirectory },
  connect: (trust, fetch) => {
    const openSocket: Connections["openSocket"] = (request) => openNodeSocket(request, trust);
    return fetch === undefined ? nodeConnections(trust, openSocket) : new FetchConnections(fetch, openSocket);
  },
};

function nodeConnections(trust: Trust, openSocket: Connections["openSocket"]): Connections {
  const pool = new NodeHttp(trust);
  return {
    send: (request) => pool.send(request),
    openSocket,
    close: () => {
      pool.close();
    },
  };
}
