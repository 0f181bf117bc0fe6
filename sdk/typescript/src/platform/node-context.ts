/** Packs a directory as the context of a build. */

import { readFile } from "node:fs/promises";
import { Dockerignore, DOCKERIGNORE } from "../dockerignore.js";
import { textBytes } from "../tar/header.js";
import { packDirectory, unlessMissing } from "./node-pack.js";

/**
 * Writes a directory as an archive, without what its `.dockerignore` excludes. `dockerfile` is the path of a file that is packed
 * nevertheless.
 */
export async function* packContext(directory: string, dockerfile?: string): AsyncGenerator<Uint8Array, void> {
  const ignore = new Dockerignore(await unlessMissing(readFile(`${directory}/${DOCKERIGNORE}`, "utf8")));
  if (dockerfile !== undefined) ignore.keep(dockerfile);
  yield* packDirectory(directory, {
    includes: (name) => !ignore.excludes(textOf(name)),
    mayIncludeBelow: (name) => ignore.mayIncludeBelow(textOf(name)),
  });
}

/** The text of a name with one character per byte. */
function textOf(name: string): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(textBytes(name));
}
