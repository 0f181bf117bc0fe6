/** The API key. It leaves this object only towards the service: neither logs nor JSON nor errors show it. */

import { Described } from "./described.js";

const MASK = "[API key]";
/** A shorter text could be a part of ordinary words, and is not a key of the service. */
const SHORTEST_KEY = 8;
/** Errors are small; a larger object is not searched to its end. */
const MOST_OBJECTS = 1000;

/** The API key of a client. */
export class ApiKey extends Described {
  readonly #text: string;

  constructor(text: string) {
    super();
    this.#text = text;
  }

  /** The value of the header `Authorization`. */
  get authorization(): string {
    return `Bearer ${this.#text}`;
  }

  /** The text without the key, for messages that others wrote, such as a proxy that repeats the request. */
  masked(text: string): string {
    return this.#text.length < SHORTEST_KEY ? text : text.replaceAll(this.#text, MASK);
  }

  /**
   * The error that caused another one. If the key is anywhere in it, as in errors of HTTP libraries that contain the request, a new
   * error with its name and its masked message replaces it.
   */
  maskedCause(cause: unknown): unknown {
    if (!this.#isIn(cause)) return cause;
    const original = cause instanceof Error ? cause : new Error(String(cause));
    const replacement = new Error(this.masked(original.message));
    replacement.name = original.name;
    return replacement;
  }

  protected describe(): object {
    return {};
  }

  #isIn(value: unknown): boolean {
    const seen = new Set<unknown>();
    const waiting: unknown[] = [value];
    while (waiting.length > 0 && seen.size < MOST_OBJECTS) {
      const next = waiting.pop();
      if (typeof next === "string" && this.masked(next) !== next) return true;
      if (typeof next !== "object" || next === null || seen.has(next)) continue;
      seen.add(next);
      waiting.push(...partsOf(next));
    }
    // What was not searched may have it.
    return waiting.length > 0;
  }
}

/** What an object contains: its properties, also those that are not enumerable, such as the message and the stack of an error. */
function partsOf(object: object): unknown[] {
  if (object instanceof Map) return [...object.keys(), ...object.values()];
  if (object instanceof Set || object instanceof Headers) return [...object].flat();
  return Reflect.ownKeys(object).flatMap((name) => {
    const property = Object.getOwnPropertyDescriptor(object, name);
    return property === undefined || !("value" in property) ? [] : [property.value as unknown];
  });
}
