/** Runs the smoke test with the settings of the environment. Arguments: directory to upload, then `websockets` or nothing. */

import process from "node:process";
import { smoke } from "./smoke.mjs";

const [directories, websockets] = process.argv.slice(2);
const steps = await smoke({}, { directories, websockets: websockets === "websockets" });
console.log(`passed: ${steps.join(" ")}`);
