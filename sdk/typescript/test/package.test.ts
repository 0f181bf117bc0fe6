import { readFileSync } from "node:fs";
import { ConfigurationError, InvalidArgument, Sandboxd, SERVICE_ERROR_CODES, VERSION } from "sandboxd";
import { expect, test } from "vitest";
import { errorOf } from "../src/error-classes.js";
import { platform as browser } from "../src/platform/browser.js";

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
