/** The package: its version, its error codes, its runtimes, and what a program that uses it compiles with. */

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import ts from "typescript";
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

/** The texts of diagnostics, with their files. */
function textsOf(diagnostics: readonly ts.Diagnostic[]): string[] {
  return diagnostics.map(({ file, start = 0, messageText }) => {
    const line = file === undefined ? "" : `${file.fileName}:${file.getLineAndCharacterOfPosition(start).line + 1}: `;
    return line + ts.flattenDiagnosticMessageText(messageText, "\n");
  });
}

function diagnosticsOf(files: readonly string[], options: ts.CompilerOptions): string[] {
  const program = ts.createProgram(files, options);
  return textsOf([...ts.getPreEmitDiagnostics(program), ...program.emit().diagnostics]);
}

/** A program that uses the package: the compiler has only what is published, and checks its types, too. */
describe("a project with target es2022 and without skipLibCheck", () => {
  let project: string;

  beforeAll(() => {
    project = mkdtempSync(join(tmpdir(), "sandboxd-consumer-"));
    const installed = join(project, "node_modules", "sandboxd");
    mkdirSync(join(project, "node_modules", "@types"), { recursive: true });
    const { config } = ts.readConfigFile(join(root, "tsconfig.build.json"), (path) => readFileSync(path, "utf8")) as { config: object };
    const { options, fileNames } = ts.parseJsonConfigFileContent(config, ts.sys, root);
    expect(diagnosticsOf(fileNames, { ...options, outDir: join(installed, "dist") })).toEqual([]);
    cpSync(join(root, "package.json"), join(installed, "package.json"));
    cpSync(join(root, "test/consumer/main.ts"), join(project, "main.ts"));
    writeFileSync(join(project, "package.json"), '{"type": "module"}');
    // The types of Node refer to those of undici.
    for (const name of ["@types/node", "undici-types"]) {
      symlinkSync(join(root, "node_modules", name), join(project, "node_modules", name));
    }
  }, 120_000);

  afterAll(() => {
    rmSync(project, { recursive: true, force: true });
  });

  const NODE = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
  const BUNDLER = { module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler };
  const DEFAULT_LIBRARY = { types: [] };
  const WITHOUT_DOM = { lib: ["lib.es2022.d.ts"], types: ["node"] };

  test.each([
    ["Node, with the default library", { ...NODE, ...DEFAULT_LIBRARY }],
    ["Node, without the types of browsers", { ...NODE, ...WITHOUT_DOM }],
    ["a bundler, with the default library", { ...BUNDLER, ...DEFAULT_LIBRARY }],
    ["an older resolution of modules", { module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Node10, ...DEFAULT_LIBRARY }],
    ["Node, with both, and exact optional properties", { ...NODE, types: ["node"], exactOptionalPropertyTypes: true }],
  ])("compiles for %s, and typing errors are errors", (_, options: ts.CompilerOptions) => {
    const target = { target: ts.ScriptTarget.ES2022, strict: true, skipLibCheck: false, outDir: join(project, "out") };
    const typeRoots = [join(project, "node_modules/@types")];
    expect(diagnosticsOf([join(project, "main.ts")], { ...target, ...options, typeRoots })).toEqual([]);
  }, 120_000);
});
