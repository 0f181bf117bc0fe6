/** Opens TCP and TLS connections on Node. Unlike fetch, this can trust a given certificate or pin one. */

import net from "node:net";
import tls from "node:tls";
import { ConnectError } from "./types.js";
import type { Trust } from "./types.js";

/** Limit for connecting and the TLS handshake. */
const CONNECT_TIMEOUT_MS = 10_000;

/** The address of a connection. */
export interface Address {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
}

/** The address in a URL. */
export function addressOf(url: URL): Address {
  const isTls = url.protocol === "https:";
  const port = url.port === "" ? (isTls ? 443 : 80) : Number(url.port);
  return { host: url.hostname.replace(/^\[|\]$/g, ""), port, isTls };
}

/** Opens a connection, and calls back once it is established and, with TLS, authenticated. */
export function connect(
  address: Address,
  trust: Trust,
  callback: (error: Error | null, socket?: net.Socket) => void,
): void {
  const socket = address.isTls ? tls.connect(tlsOptions(address, trust)) : net.connect(address.port, address.host);
  const finish = (error: Error | null): void => {
    clearTimeout(timer);
    socket.off("error", finish);
    if (error === null) {
      socket.setNoDelay(true);
      callback(null, socket);
    } else {
      // Errors after the first one have no other listener.
      socket.on("error", () => undefined);
      socket.destroy();
      callback(connectError(error));
    }
  };
  const timer = setTimeout(() => {
    finish(new Error(`no connection within ${CONNECT_TIMEOUT_MS / 1000} s`));
  }, CONNECT_TIMEOUT_MS);
  socket.once("error", finish);
  socket.once(address.isTls ? "secureConnect" : "connect", () => {
    finish(socket instanceof tls.TLSSocket ? pinError(socket, trust) : null);
  });
}

function tlsOptions(address: Address, trust: Trust): tls.ConnectionOptions {
  return {
    host: address.host,
    port: address.port,
    ...(net.isIP(address.host) === 0 ? { servername: address.host } : {}),
    ...(trust.kind === "certificates" ? { ca: trust.pem } : {}),
    // The fingerprint is checked instead of the chain, before anything is sent.
    ...(trust.kind === "pinned" ? { rejectUnauthorized: false } : {}),
  };
}

function pinError(socket: tls.TLSSocket, trust: Trust): Error | null {
  if (trust.kind !== "pinned") return null;
  const shown = socket.getPeerCertificate().fingerprint256.replaceAll(":", "").toLowerCase();
  if (shown === trust.sha256) return null;
  return new ConnectError(`the certificate has the fingerprint sha256:${shown}`, undefined, true);
}

function connectError(error: Error): ConnectError {
  if (error instanceof ConnectError) return error;
  const code = "code" in error ? String(error.code) : "";
  const isCertificate = /CERT|SIGNATURE|ALTNAME/.test(code);
  return new ConnectError(error.message || code, error, isCertificate);
}
