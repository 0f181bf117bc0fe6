/**
 * The overhead of a call: a GET of one sandbox by the SDK and by bare fetch, in alternation. Prints the milliseconds of each
 * call as JSON. Run by `./dev bench sdk`; argument: the number of rounds.
 */

import process from "node:process";
import { Sandboxd } from "../dist/index.js";

const WARM_UP = 50;
const rounds = Number(process.argv[2] ?? 500);
const { SANDBOXD_URL: url, SANDBOXD_API_KEY: key } = process.env;

const client = new Sandboxd();
const sandbox = await client.sandboxes.create(process.env.IMAGE ?? "ubuntu:24.04", { idleTimeoutMs: 0 });
const headers = { authorization: `Bearer ${key}` };
const subjects = {
  sandboxd: () => sandbox.refresh(),
  fetch: async () => (await fetch(`${url}/v1/sandboxes/${sandbox.id}`, { headers })).json(),
};

const found = { sandboxd: [], fetch: [] };
for (let round = 0; round < rounds + WARM_UP; round++) {
  for (const name of round % 2 === 0 ? ["sandboxd", "fetch"] : ["fetch", "sandboxd"]) {
    const begin = performance.now();
    const view = await subjects[name]();
    const took = performance.now() - begin;
    if (view.id !== sandbox.id) throw new Error(`${name} got ${JSON.stringify(view)}`);
    if (round >= WARM_UP) found[name].push(took);
  }
}
console.log(JSON.stringify({ "sdk-typescript": found }));
await sandbox.terminate();
client.close();
