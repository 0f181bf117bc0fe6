/** Runs the examples of the README against a real service. Skipped without `SANDBOXD_URL`. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

const text = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const examples = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((match) => match[1] ?? "");
const directory = new URL("examples/", import.meta.url);

beforeEach(() => {
  vi.spyOn(console, "log").mockReturnValue();
  vi.spyOn(console, "assert").mockImplementation((condition) => {
    expect(condition).toBe(true);
  });
});

afterEach(() => {
  vi.restoreAllMocks();
});

test("the README has examples", () => {
  expect(examples.length).toBeGreaterThan(5);
});

test.skipIf(process.env.SANDBOXD_URL === undefined).each(examples.map((_, index) => index))("example %i", async (index) => {
  mkdirSync(directory, { recursive: true });
  const file = new URL(`${index}.ts`, directory);
  writeFileSync(file, `${examples[index] ?? ""}export {};\n`);
  await import(file.pathname);
});
