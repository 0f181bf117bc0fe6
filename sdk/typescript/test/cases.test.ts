/** The tables of cases that the tests of all clients share. */

import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import * as sandboxd from "sandboxd";
import { errorOfResponse, responseInfo } from "../src/error-classes.js";
import { mayRepeat, retryWaitMs } from "../src/retry.js";
import type { Fault, Safety } from "../src/retry.js";
import { resolveSettings } from "../src/settings.js";
import type { ClientOptions } from "../src/settings.js";
import { SseParser } from "../src/sse.js";

function cases(topic: string): Record<string, unknown>[] {
  const file = new URL(`../../cases/${topic}.json`, import.meta.url);
  if (!existsSync(file)) return [];
  return (JSON.parse(readFileSync(file, "utf8")) as { cases: Record<string, unknown>[] }).cases;
}

/** Runs the cases of a table. */
function each(topic: string, check: (row: Record<string, unknown>) => void): void {
  describe(topic, () => {
    const rows = cases(topic);
    test("the table has cases", () => {
      expect(rows.length).toBeGreaterThan(0);
    });
    for (const [index, row] of rows.entries()) {
      test(`${index}: ${JSON.stringify(row).slice(0, 160)}`, () => {
        check(row);
      });
    }
  });
}

each("retry", ({ safety, fault, retry }) => {
  expect(mayRepeat(safety as Safety, fault as Fault)).toBe(retry);
});

each("wait", (row) => {
  const policy = { retries: row.retries as number, maxRetryWaitMs: row.max_retry_wait_ms as number };
  const retryAfter = (row.retry_after_ms as number | null) ?? undefined;
  const wait = retryWaitMs(policy, row.next as number, retryAfter, row.random as number);
  if (row.wait_ms === null) expect(wait).toBeUndefined();
  else expect(wait).toBeCloseTo(row.wait_ms as number, 3);
});

each("sse", (row) => {
  const chunks = (row.chunks as string[]).map((chunk) => new TextEncoder().encode(chunk));
  const expected = row.events as Record<string, unknown>[];
  const shown = (parts: Uint8Array[]): unknown[] => {
    const parser = new SseParser();
    return parts.flatMap((part) => parser.push(part)).map((event, index) => {
      const all: Record<string, unknown> = { id: null, end: null, ...event };
      return Object.fromEntries(Object.keys(expected[index] ?? event).map((name) => [name, all[name]]));
    });
  };
  expect(shown(chunks)).toEqual(expected);
  const bytes = Buffer.concat(chunks);
  for (let at = 0; at <= bytes.length; at++) expect(shown([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(expected);
});

each("error", (row) => {
  const expected = row.expected as Record<string, unknown>;
  const headers = new Headers(row.headers as Record<string, string>);
  const error = errorOfResponse(row.body as string, responseInfo({ status: row.status as number, headers }));
  const shown: Record<string, unknown> = {
    code: error.code,
    code_name: error.codeName,
    class: error.name,
    message: error.message,
    status: error.status ?? null,
    details: error.details,
    retryable: error.retryable,
    request_id: error.requestId ?? null,
    retry_after_ms: error.retryAfterMs ?? null,
  };
  for (const [name, value] of Object.entries(expected)) expect([name, shown[name]]).toEqual([name, value]);
  expect(error.name in sandboxd).toBe(true);
});

each("settings", (row) => {
  const environment = row.environment as Record<string, string>;
  const files = (row.files ?? {}) as Record<string, string>;
  const source = {
    environment: (name: string) => environment[name],
    readTextFile: (path: string) => {
      const text = files[path];
      if (text === undefined) throw new Error(`ENOENT: ${path}`);
      return text;
    },
  };
  const args = (row.arguments ?? {}) as Record<string, unknown>;
  const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  const options = Object.fromEntries(Object.entries(args).map(([name, value]) => [camel(name), value])) as ClientOptions;
  const expected = row.expected as Record<string, unknown>;
  if (typeof expected.error === "string") {
    expect(() => resolveSettings(options, source)).toThrow(expected.error);
    return;
  }
  const settings = resolveSettings(options, source);
  if (expected.url !== undefined) expect(`${settings.serviceUrl.base}/v1`).toBe(expected.url);
  if (expected.key !== undefined) expect(settings.apiKey.authorization).toBe(`Bearer ${expected.key as string}`);
  if (expected.trust !== undefined) expect(settings.trust.kind).toBe(expected.trust);
});
