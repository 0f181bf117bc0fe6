/** Times and sizes with units. */

import { InvalidArgument } from "sandboxd";
import type { Duration, Size } from "sandboxd";
import { expect, test } from "vitest";
import { megabytes, megabytesOf, milliseconds, millisecondsOf } from "../src/units.js";
import { json, Service, TEMPLATE, VIEW } from "./service.js";

test.each<[Duration, number]>([
  [250, 250],
  ["500ms", 500],
  ["90s", 90_000],
  ["90m", 5_400_000],
  ["1.5h", 5_400_000],
  ["0.1s", 100],
  ["1h30m", 5_400_000],
  ["2m5s", 125_000],
  ["7d", 604_800_000],
])("%s is %i ms", (duration, ms) => {
  expect(milliseconds("timeout", duration)).toBe(ms);
});

test.each<[Size, number]>([
  [2048, 2048],
  ["512m", 512],
  ["4g", 4096],
  ["4G", 4096],
  ["4GB", 4096],
  ["1.5GiB", 1536],
])("%s is %i MB", (size, mb) => {
  expect(megabytes("memory", size)).toBe(mb);
});

test.each(["", "90", "90 m", "-5s", "1e3s", "5x", "m", "1h30", "1M", "0.0001s", null, {}])("%j is not a time", (text) => {
  const parse = (): unknown => milliseconds("timeout", text as Duration);
  expect(parse).toThrow(InvalidArgument);
  expect(parse).toThrow(/^timeout is /);
});

test.each(["", "4", "4 g", "-4g", "4gigs", "g", "0.3g", "1t", "99999999999999g", null])("%j is not a size", (text) => {
  expect(() => megabytes("memory", text as Size)).toThrow(/^memory is /);
});

test("an option and its number cannot both be set", () => {
  expect(() => millisecondsOf("timeout", "1s", 1000)).toThrow("timeout and timeoutMs are both set; set one of them");
  expect(() => megabytesOf("disk", "20g", 1)).toThrow("disk and diskMb are both set");
  expect([millisecondsOf("timeout", undefined, 5), megabytesOf("disk", undefined, undefined)]).toEqual([5, undefined]);
});

test("options with units are sent as the numbers of the service", async () => {
  await using service = await Service.start((_, response) => json(200, { ...VIEW, ...TEMPLATE, id: VIEW.id, executionId: "ex_1" })(_, response));
  const client = service.client({ maxRetryWait: "1m" });
  const sandbox = await client.sandboxes.create("i", { memory: "4g", disk: "20g", timeout: "90m", idleTimeout: "10m" });
  await sandbox.execute("true", { timeout: "2m" });
  await sandbox.start("true", { timeout: "2h" });
  await sandbox.setTimeout("90m");
  await sandbox.runCode("1", { timeout: "30s" });
  await sandbox.ports.token(80, { expiresIn: "1d" });
  await client.templates.start("t", { memory: "2g", disk: 5120, timeout: "1h", readyTimeout: "90s" });
  const found = service.received.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
  expect(found).toMatchObject([
    { resources: { memoryMb: 4096, diskMb: 20_480 }, timeoutMs: 5_400_000, idleTimeoutMs: 600_000 },
    { timeoutMs: 120_000 },
    { timeoutMs: 7_200_000, detached: true },
    { timeoutMs: 5_400_000 },
    { timeoutMs: 30_000 },
    { expiresInMs: 86_400_000 },
    { resources: { memoryMb: 2048, diskMb: 5120 }, timeoutMs: 3_600_000, readyTimeoutMs: 90_000 },
  ]);
});
