/**
 * The file `.dockerignore`: which paths of a build context are left out. The rules are those of Docker: the last pattern that matches
 * a path or a directory above it decides, and a pattern with `!` is an exception.
 */

/** The name of the file, in the directory of the context. */
export const DOCKERIGNORE = ".dockerignore";

/** Characters with a meaning in a pattern. */
const SPECIAL = /[*?[\\]/;

interface Rule {
  /** Whether the pattern begins with `!`. */
  readonly isException: boolean;
  /** Matches the paths of the pattern, and all paths below them. */
  readonly paths: RegExp;
  /** The path of a directory or file without special characters, at or below which all these paths are. */
  readonly base: string;
}

/** The patterns of a file. Paths are relative to the context, with slashes between their parts. */
export class Dockerignore {
  /** The last rule first. */
  readonly #rules: Rule[] = [];

  /** Parses the text of a file. Throws an `Error` that names the line of a malformed pattern. */
  constructor(text = "") {
    for (const [index, line] of text.replace(/^\ufeff/, "").split("\n").entries()) {
      const trimmed = line.trim();
      // A comment begins in the first column.
      if (line.startsWith("#") || trimmed === "") continue;
      try {
        this.#rules.unshift(ruleOf(trimmed));
      } catch (cause) {
        throw new Error(`${DOCKERIGNORE}, line ${index + 1}: '${trimmed}' is not a pattern`, { cause });
      }
    }
  }

  /** Includes a file, whatever the patterns say. */
  keep(path: string): void {
    const base = cleaned(path);
    this.#rules.unshift({ isException: true, paths: ofPathsAndBelow(escaped(base)), base });
  }

  /** Whether a path is left out. */
  excludes(path: string): boolean {
    return this.#rules.find(({ paths }) => paths.test(path))?.isException === false;
  }

  /** Whether a path below an excluded directory may be included. */
  mayIncludeBelow(directory: string): boolean {
    return this.#rules.some(({ isException, base }) => {
      return isException && (base === "" || `${base}/`.startsWith(`${directory}/`) || directory.startsWith(`${base}/`));
    });
  }
}

function ruleOf(line: string): Rule {
  const isException = line.startsWith("!");
  const pattern = cleaned(isException ? line.slice(1).trim() : line);
  if (pattern === "") throw new SyntaxError("a pattern is missing");
  const parts = pattern.split("/");
  const special = parts.findIndex((part) => SPECIAL.test(part));
  const base = (special < 0 ? parts : parts.slice(0, special)).join("/");
  return { isException, paths: ofPathsAndBelow(sourceOf(pattern)), base };
}

function ofPathsAndBelow(source: string): RegExp {
  return new RegExp(`^(?:${source})(?:/.*)?$`, "su");
}

/** Without `.`, `..` where possible, and slashes at the ends. A path of slashes or dots only is `.`, which matches nothing. */
function cleaned(path: string): string {
  if (path === "") return "";
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === ".." && parts.length > 0 && parts.at(-1) !== "..") parts.pop();
    else if (part !== ".." || !path.startsWith("/")) parts.push(part);
  }
  return parts.length === 0 ? "." : parts.join("/");
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

/** The regular expression for a pattern. */
function sourceOf(pattern: string): string {
  const end = pattern.slice(2);
  // Like in Docker, `**` without a slash matches the beginning of a name, too.
  if (pattern.startsWith("**") && !end.startsWith("/") && !SPECIAL.test(end)) return `.*${escaped(end)}`;
  const characters = Array.from(pattern);
  let source = "";
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at] ?? "";
    if (character === "*" && characters[at + 1] === "*") {
      at += characters[at + 2] === "/" ? 2 : 1;
      // At the end it matches everything; otherwise any number of directories.
      source += at === characters.length - 1 ? ".*" : "(?:.*/)?";
    } else if (character === "*") {
      source += "[^/]*";
    } else if (character === "?") {
      source += "[^/]";
    } else if (character === "[") {
      const close = endOfClass(characters, at);
      source += classOf(characters.slice(at + 1, close));
      at = close;
    } else {
      if (character === "\\") at += 1;
      source += escaped(literal(characters[at]));
    }
  }
  return source;
}

/** The position of the `]` that ends the class which begins at `start`. */
function endOfClass(characters: readonly string[], start: number): number {
  for (let at = start + 1; at < characters.length; at++) {
    if (characters[at] === "]") return at;
    if (characters[at] === "\\") at += 1;
  }
  throw new SyntaxError("a class does not end");
}

/** The regular expression for a class, such as `^a-z`. */
function classOf(characters: readonly string[]): string {
  const isNegated = characters[0] === "^";
  let source = "";
  for (let at = isNegated ? 1 : 0; at < characters.length; at++) {
    if (characters[at] === "-") source += "-";
    else source += escaped(literal(characters[characters[at] === "\\" ? ++at : at])).replace(/^-$/, "\\-");
  }
  if (source === "") throw new SyntaxError("a class is empty");
  return `[${isNegated ? "^" : ""}${source}]`;
}

/** A character; a backslash at the end of a pattern has none. */
function literal(character: string | undefined): string {
  if (character === undefined) throw new SyntaxError("a backslash is the last character");
  return character;
}
