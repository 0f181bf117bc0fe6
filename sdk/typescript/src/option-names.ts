/**
 * The names of options are checked when a method is called, because a misspelled option has no effect: `egres` in place of `egress`
 * would leave the network open. The compiler finds it only in an object literal, and not at all in JavaScript.
 */

import { argumentError } from "./error-classes.js";

/** The names of the options `T`; the compiler requires all of them. */
export type OptionNames<T> = { readonly [K in keyof T]-?: true };

/** The most edits between a misspelled name and the name that the error suggests. */
const MOST_EDITS = 2;

/** Throws an {@link InvalidArgument} for an option whose name is not in `names`. `within` is the option that has these options. */
export function checkNames<T extends object>(options: T, names: OptionNames<T>, within?: string): T {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(names, name)) throw unknownOption(name, Object.keys(names), within);
  }
  return options;
}

function unknownOption(name: string, known: readonly string[], within: string | undefined): Error {
  const path = (option: string): string => (within === undefined ? option : `${within}.${option}`);
  const nearest = nearestName(name, known);
  const remedy = nearest === undefined ? `the options are ${known.map(path).join(", ")}` : `did you mean '${path(nearest)}'?`;
  return argumentError(path(name), `unknown option '${path(name)}'; ${remedy}`);
}

/** The known name that is most similar; `undefined` if none is similar. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const distances = known.map((each) => ({ each, edits: editDistance(name.toLowerCase(), each.toLowerCase()) }));
  const [nearest] = distances.sort((one, other) => one.edits - other.edits);
  return nearest !== undefined && nearest.edits <= MOST_EDITS ? nearest.each : undefined;
}

/** The number of characters to insert, delete, replace or swap with their neighbour. */
function editDistance(from: string, to: string): number {
  // Names that differ much in length are not similar; this also bounds the work for a long name.
  if (Math.abs(from.length - to.length) > MOST_EDITS) return MOST_EDITS + 1;
  let before: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const isSame = from[row - 1] === to[column - 1];
      const isSwap = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      const replaced = at(last, column - 1) + (isSame ? 0 : 1);
      const swapped = isSwap ? at(before, column - 2) + 1 : replaced;
      current.push(Math.min(at(last, column) + 1, at(current, column - 1) + 1, replaced, swapped));
    }
    [before, last] = [last, current];
  }
  return at(last, to.length);
}

function at(row: readonly number[], column: number): number {
  return row[column] ?? Number.MAX_SAFE_INTEGER;
}
