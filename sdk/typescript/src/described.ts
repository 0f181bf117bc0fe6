/** The shared part of public objects: how they appear in logs and in JSON. */

/** `util.inspect.custom` of Node, which Bun and Deno know too. */
const INSPECT: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/**
 * An object that shows only its description in logs, in texts and in JSON, and never the connection to the service with its key.
 * Subclasses have no public property that leads to the connection.
 */
export abstract class Described {
  /** The properties to show. */
  protected abstract describe(): object;

  /** The description, for `JSON.stringify`. */
  toJSON(): object {
    return this.describe();
  }

  /** The name of the class and the description. */
  toString(): string {
    return `${this.constructor.name} ${JSON.stringify(this.describe())}`;
  }

  /** The name of the class and the description, for `console.log`. */
  [INSPECT](_depth: number, options: object, inspect?: (value: unknown, options: object) => string): string {
    const description = this.describe();
    return `${this.constructor.name} ${inspect === undefined ? JSON.stringify(description) : inspect(description, options)}`;
  }
}
