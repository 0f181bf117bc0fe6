/** Trust in a self-signed certificate. Tests with a service are skipped without `SANDBOXD_URL`. */

import { createHash, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import process from "node:process";
import { Sandboxd } from "sandboxd";
import { describe, expect, test } from "vitest";
import { resolveSettings } from "../src/settings.js";

const dataDir = process.env.SANDBOXD_DATA_DIR ?? "/var/lib/sandboxd";

test("the certificate of a local service is known to runtimes that cannot pin it", () => {
  const fingerprint = `sha256:${"0f".repeat(32)}`;
  const files: Record<string, string> = {
    "/d/local.json": JSON.stringify({ url: "https://127.0.0.1:1", certificate: "/c.pem", fingerprint }),
    "/d/local.key": "sk_local",
    "/c.pem": "PEM",
  };
  const source = { environment: () => undefined, readTextFile: (path: string) => files[path] ?? missing(path) };
  const { trust } = resolveSettings({ dataDir: "/d" }, source);
  expect(trust).toEqual({ kind: "pinned", sha256: "0f".repeat(32), pem: "PEM" });
});

function missing(path: string): never {
  throw new Error(`ENOENT: ${path}`);
}

describe.skipIf(process.env.SANDBOXD_URL?.startsWith("https://127.0.0.1") !== true)("a local service with TLS", () => {
  test("its certificate can be trusted by file, text and fingerprint", async () => {
    const file = `${dataDir}/tls/tls-cert.pem`;
    const pem = readFileSync(file, "utf8");
    const digest = createHash("sha256").update(new X509Certificate(pem).raw).digest("hex");
    for (const options of [{ certificate: file }, { certificate: pem }, { fingerprint: `sha256:${digest}` }]) {
      expect((await new Sandboxd(options).health()).status).toBe("ok");
    }
  });

  test("another certificate is not trusted, and the error says what to do", async () => {
    const wrong = [{ systemCertificates: true }, { fingerprint: `sha256:${"0f".repeat(32)}` }];
    for (const options of wrong) {
      const error = await new Sandboxd({ ...options, retries: 0 }).health().catch((caught: unknown) => caught);
      expect(error).toMatchObject({ code: "NETWORK_ERROR", details: { reason: "certificate" } });
    }
  });
});
