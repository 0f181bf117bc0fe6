/** Times and sizes as texts with units, such as `90m` and `4g`. Pure functions; a malformed text is an {@link InvalidArgument}. */

import { argumentError } from "./error-classes.js";

const MS_OF: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const MB_OF: Readonly<Record<string, number>> = { m: 1, mb: 1, mib: 1, g: 1024, gb: 1024, gib: 1024 };
/** Values are computed in binary fractions, in which 0.1 is not exact. */
const ROUNDING = 1e-6;

type Time = `${number}${"ms" | "s" | "m" | "h" | "d"}`;

/** A time: a number of milliseconds, or a text with units such as `500ms`, `90s`, `1.5h` or `1h30m`. `m` is minutes. */
export type Duration = number | Time | `${number}h${number}m` | `${number}m${number}s`;

/** A size: a number of MB, or a text with its unit such as `512m`, `4g` or `1.5GiB`. A gigabyte has 1,024 MB. */
export type Size = number | `${number}${"m" | "mb" | "mib" | "g" | "gb" | "gib" | "M" | "MB" | "MiB" | "G" | "GB" | "GiB"}`;

/** The milliseconds of the options `name` and `nameMs`, of which at most one may be set. */
export function millisecondsOf(name: string, duration: Duration | undefined, ms: number | undefined): number | undefined {
  if (duration === undefined) return ms;
  if (ms !== undefined) throw bothSet(name, `${name}Ms`);
  return milliseconds(name, duration);
}

/** The megabytes of the options `name` and `nameMb`, of which at most one may be set. */
export function megabytesOf(name: string, size: Size | undefined, mb: number | undefined): number | undefined {
  if (size === undefined) return mb;
  if (mb !== undefined) throw bothSet(name, `${name}Mb`);
  return megabytes(name, size);
}

/** A time in milliseconds. `argument` is its name in the error. */
export function milliseconds(argument: string, duration: Duration): number {
  if (typeof duration === "number") return duration;
  const parts = [...textOf(duration).matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  if (parts.length === 0 || parts.map(([text]) => text).join("") !== duration) {
    throw malformed(argument, duration, "a time such as '90s', '30m' or '1h30m'");
  }
  const total = parts.reduce((sum, [, digits, unit = ""]) => sum + Number(digits) * (MS_OF[unit] ?? Number.NaN), 0);
  return whole(argument, duration, total, "milliseconds");
}

/** A size in megabytes. `argument` is its name in the error. */
export function megabytes(argument: string, size: Size): number {
  if (typeof size === "number") return size;
  const [, digits, unit = ""] = /^(\d+(?:\.\d+)?)([a-z]+)$/i.exec(textOf(size)) ?? [];
  const factor = MB_OF[unit.toLowerCase()];
  if (digits === undefined || factor === undefined) throw malformed(argument, size, "a size such as '512m' or '4g'");
  return whole(argument, size, Number(digits) * factor, "MB");
}

function whole(argument: string, text: string, value: number, unit: string): number {
  const rounded = Math.round(value);
  if (Math.abs(value - rounded) < ROUNDING && Number.isSafeInteger(rounded)) return rounded;
  throw argumentError(argument, `${argument} is '${text}', which is not a whole number of ${unit}`);
}

/** Programs without types may pass anything. */
function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function malformed(argument: string, value: unknown, expected: string): Error {
  return argumentError(argument, `${argument} is '${String(value)}'; expected ${expected}`);
}

function bothSet(name: string, other: string): Error {
  return argumentError(name, `${name} and ${other} are both set; set one of them`);
}
