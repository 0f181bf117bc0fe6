import { describe, expect, test } from "vitest";
import { mayRepeat, retryWaitMs } from "../src/retry.js";
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
