/** Every public name has a comment that editors show: what is exported, and the members of it. */

import { join } from "node:path";
import ts from "typescript";
import { beforeAll, expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
let checker: ts.TypeChecker;
let exported: ts.Symbol[];

beforeAll(() => {
  const { config } = ts.readConfigFile(join(root, "tsconfig.json"), (path) => ts.sys.readFile(path)) as { config: object };
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const program = ts.createProgram([join(root, "src/index.ts")], options);
  checker = program.getTypeChecker();
  const index = program.getSourceFile(join(root, "src/index.ts"));
  const module = index === undefined ? undefined : checker.getSymbolAtLocation(index);
  exported = module === undefined ? [] : checker.getExportsOfModule(module).map(resolved);
}, 60_000);

function resolved(symbol: ts.Symbol): ts.Symbol {
  return (symbol.flags & ts.SymbolFlags.Alias) === 0 ? symbol : checker.getAliasedSymbol(symbol);
}

function isDocumented(symbol: ts.Symbol): boolean {
  return symbol.getDocumentationComment(checker).length > 0;
}

/** The members that programs can use, with constructors and static ones. */
function membersOf(symbol: ts.Symbol): ts.Symbol[] {
  const own = [...(symbol.members?.values() ?? []), ...(symbol.exports?.values() ?? [])];
  return own.filter((member) => {
    const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
    const isHidden = member.declarations?.every(
      (declaration) =>
        (ts.getCombinedModifierFlags(declaration) & hidden) !== 0 ||
        (ts.isClassElement(declaration) && declaration.name !== undefined && ts.isPrivateIdentifier(declaration.name)),
    );
    return isHidden === false && (member.flags & (ts.SymbolFlags.TypeParameter | ts.SymbolFlags.Prototype)) === 0;
  });
}

test("every public name has a comment", () => {
  expect(exported.length).toBeGreaterThan(150);
  // Those of generated types are descriptions in docs/openapi.json, or in tools/model-comments.mjs.
  const missing = exported.flatMap((symbol) => [
    ...(isDocumented(symbol) ? [] : [symbol.name]),
    ...membersOf(symbol).filter((member) => !isDocumented(member)).map((member) => `${symbol.name}.${member.name}`),
  ]);
  expect(missing).toEqual([]);
});

test("the comments of the main entry points stand alone: parameters, results, errors and an example", () => {
  const members = exported.filter(({ name }) => name === "Sandbox").flatMap(membersOf);
  for (const name of ["create", "execute"]) {
    const method = members.find((member) => member.name === name);
    const tags = method?.getJsDocTags(checker).map((tag) => tag.name);
    expect(tags).toEqual(["param", "param", "returns", "throws", "example"]);
  }
});
