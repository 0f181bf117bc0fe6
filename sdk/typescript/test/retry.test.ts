import { describe, expect, test } from "vitest";
import { delayOf, isLeftToCaller, isRefused, mayRepeat, retryWaitMs } from "../src/retry.js";
import type { Fault, Safety } from "../src/retry.js";

const answered = (status: number, code: string): Fault => ({ kind: "answered", status, code });
const SAFETIES: Safety[] = ["repeatable", "command", "after_answer", "only_unstarted"];

describe("only safe requests are retried", () => {
  const table: [Fault, boolean[]][] = [
    [{ kind: "not_sent" }, [true, true, true, true]],
    [{ kind: "lost" }, [true, true, false, false]],
    [{ kind: "no_content" }, [false, false, false, false]],
    [{ kind: "killed" }, [false, false, false, false]],
    [answered(500, "INTERNAL_ERROR"), [true, false, true, false]],
    [answered(502, "UNKNOWN"), [true, false, true, false]],
    [answered(503, "RESOURCE_EXHAUSTED"), [true, true, true, true]],
    [answered(429, "RATE_LIMITED"), [true, true, true, true]],
    [answered(507, "DISK_FULL"), [false, false, false, false]],
    [answered(409, "INVALID_STATE"), [false, false, false, false]],
  ];
  test.each(table)("%j", (fault, expected) => {
    expect(SAFETIES.map((safety) => mayRepeat(safety, fault))).toEqual(expected);
  });
});

test("backoff grows and is bounded", () => {
  const policy = { retries: 2, maxRetryWaitMs: 10_000 };
  expect([1, 2, 3].map((next) => retryWaitMs(policy, next, undefined, 1))).toEqual([100, 400, undefined]);
  expect(retryWaitMs(policy, 1, undefined, 0)).toBe(50);
  expect(retryWaitMs({ ...policy, retries: 2000 }, 1000, undefined, 1)).toBe(5000);
  expect(retryWaitMs(policy, 1, 10_000, 1)).toBe(10_025);
  expect(retryWaitMs(policy, 1, 10_001, 1)).toBeUndefined();
});

describe("a refusal that says when to come back is waited for", () => {
  const policy = { retries: 2, maxRetryWaitMs: 10_000 };
  const limited = answered(429, "RATE_LIMITED");
  const table: [string, Fault, { retries?: number; waits?: number; waitedMs?: number }, number | undefined, object | undefined][] = [
    ["for a limit", limited, {}, 9000, { kind: "wait", ms: 9025 }],
    ["for capacity", answered(503, "RESOURCE_EXHAUSTED"), {}, 9000, { kind: "wait", ms: 9025 }],
    ["whatever the number of retries and waits", limited, { retries: 2, waits: 100 }, 1000, { kind: "wait", ms: 2250 }],
    ["up to the sum of all waits", limited, { waits: 1, waitedMs: 1000 }, 9000, { kind: "wait", ms: 9100 }],
    ["not beyond it", limited, { waits: 1, waitedMs: 1001 }, 9000, undefined],
    ["as a retry if it does not say when", limited, { retries: 1 }, undefined, { kind: "retry", ms: 400 }],
    ["and other errors are retries", answered(500, "INTERNAL_ERROR"), {}, 1000, { kind: "retry", ms: 1025 }],
    ["as many as allowed", answered(500, "INTERNAL_ERROR"), { retries: 2 }, 1000, undefined],
  ];
  test.each(table)("%s", (_, fault, used, retryAfterMs, expected) => {
    const all = { retries: 0, waits: 0, waitedMs: 0, ...used };
    expect(delayOf(policy, all, fault, retryAfterMs, 1)).toEqual(expected);
  });
});

test("only refusals had no effect, and the caller chooses which ones to wait for", () => {
  const codes = ["RATE_LIMITED", "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "INTERNAL_ERROR"];
  expect(codes.map((code) => isRefused(answered(503, code)))).toEqual([true, true, false, false]);
  expect(isRefused({ kind: "killed" })).toBe(false);
  const left = (["limits_and_capacity", "limits", "none"] as const).map((patience) => codes.map((code) => isLeftToCaller(patience, code)));
  expect(left).toEqual([
    [false, false, false, false],
    [false, true, false, false],
    [true, true, false, false],
  ]);
});
