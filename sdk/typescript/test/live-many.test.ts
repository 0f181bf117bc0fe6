/** Many sandboxes at the same time from one process. Skipped without `SANDBOXD_URL`. */

import process from "node:process";
import { Sandboxd } from "sandboxd";
import { expect, test } from "vitest";

const IMAGE = process.env.SANDBOXD_TEST_IMAGE ?? "ubuntu:24.04";
const MANY = 200;

test.skipIf(process.env.SANDBOXD_URL === undefined)(
  `${MANY} sandboxes at the same time`,
  async () => {
    const client = new Sandboxd({ timeoutMs: 120_000 });
    const names = await Promise.all(
      Array.from({ length: MANY }, async (_, index) => {
        await using sandbox = await client.sandboxes.create(IMAGE, { env: { NAME: `n${index}` } });
        return (await sandbox.execute("echo $NAME")).stdout.trim();
      }),
    );
    expect(names).toEqual(Array.from({ length: MANY }, (_, index) => `n${index}`));
  },
  180_000,
);
