/** The package: its version, its error codes, its runtimes, and what a program that uses it compiles with. */

import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { ConfigurationError, InvalidArgument, Sandboxd, SERVICE_ERROR_CODES, VERSION } from "sandboxd";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { errorOf } from "../src/error-classes.js";
import { platform as browser } from "../src/platform/browser.js";

const root = join(import.meta.dirname, "..");
const json = (path: string): unknown => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));

test("the version is that of the package", () => {
  expect(json("../package.json")).toMatchObject({ version: VERSION });
});

test("the error codes are those of the service, each with a class of its own", () => {
  const document = json("../../../docs/openapi.json") as { components: { schemas: { ErrorCode: { enum: string[] } } } };
  expect([...SERVICE_ERROR_CODES].sort()).toEqual([...document.components.schemas.ErrorCode.enum].sort());
  expect(new Set(SERVICE_ERROR_CODES.map((code) => errorOf(code, "").name)).size).toBe(SERVICE_ERROR_CODES.length);
});

test("malformed ids are refused before a request", () => {
  const client = new Sandboxd({ url: "http://127.0.0.1:1", apiKey: "k" });
  expect(() => client.sandboxes.connect("../etc")).toThrow(InvalidArgument);
});

test("a browser has no files and trusts no other certificates", () => {
  expect(() => browser.readTextFile("x")).toThrow(ConfigurationError);
  expect(() => browser.connect({ kind: "certificates", pem: "" })).toThrow(ConfigurationError);
});

/**
 * The errors of the compiler. It runs in another process: on a busy machine it would keep the event loop of this one from running for so
 * long that vitest gives it up.
 */
async function errorsOf(...args: string[]): Promise<string> {
  const command = [join(root, "node_modules/typescript/bin/tsc"), "--pretty", "false", ...args];
  try {
    return (await promisify(execFile)(process.execPath, command)).stdout;
  } catch (error) {
    return String((error as { stdout?: string }).stdout ?? error);
  }
}

/** A program that uses the package: the compiler has only what is published, and checks its types, too. */
describe("a project with target es2022 and without skipLibCheck", () => {
  let project: string;

  beforeAll(async () => {
    project = mkdtempSync(join(tmpdir(), "sandboxd-consumer-"));
    const installed = join(project, "node_modules", "sandboxd");
    mkdirSync(join(project, "node_modules", "@types"), { recursive: true });
    expect(await errorsOf("-p", join(root, "tsconfig.build.json"), "--outDir", join(installed, "dist"))).toBe("");
    cpSync(join(root, "package.json"), join(installed, "package.json"));
    cpSync(join(root, "test/consumer/main.ts"), join(project, "main.ts"));
    writeFileSync(join(project, "package.json"), '{"type": "module"}');
    // The types of Node refer to those of undici.
    for (const name of ["@types/node", "undici-types"]) {
      symlinkSync(join(root, "node_modules", name), join(project, "node_modules", name));
    }
  }, 300_000);

  afterAll(() => {
    rmSync(project, { recursive: true, force: true });
  });

  const NODE = { module: "nodenext", moduleResolution: "nodenext" };
  const BUNDLER = { module: "esnext", moduleResolution: "bundler" };
  const DEFAULT_LIBRARY = { types: [] };
  const WITHOUT_DOM = { lib: ["es2022"], types: ["node"] };

  test.each([
    ["Node, with the default library", { ...NODE, ...DEFAULT_LIBRARY }],
    ["Node, without the types of browsers", { ...NODE, ...WITHOUT_DOM }],
    ["a bundler, with the default library", { ...BUNDLER, ...DEFAULT_LIBRARY }],
    ["an older resolution of modules", { module: "esnext", moduleResolution: "node10", ...DEFAULT_LIBRARY }],
    ["Node, with both, and exact optional properties", { ...NODE, types: ["node"], exactOptionalPropertyTypes: true }],
  ])("compiles for %s, and typing errors are errors", async (_, options) => {
    const target = { target: "es2022", strict: true, skipLibCheck: false, outDir: "out", typeRoots: ["node_modules/@types"] };
    const configuration = join(project, "tsconfig.json");
    writeFileSync(configuration, JSON.stringify({ compilerOptions: { ...target, ...options }, files: ["main.ts"] }));
    expect(await errorsOf("-p", configuration)).toBe("");
  }, 300_000);
});
