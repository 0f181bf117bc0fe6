//! A name of a type says what it is only if few types have it: at most three in the crates of the product, tests left out.

use std::collections::BTreeMap;

use super::Violation;
use super::lex::Token;
use super::scope::{CrateRole, ScopedFile};
use super::source::{Rust, closes, closing, opens};

/// The most definitions of one type name.
pub const SAME_TYPE_NAME: usize = 3;

/// Finds all definitions of a name that more types have.
pub fn check(files: &[ScopedFile<'_>]) -> Vec<Violation> {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.role == CrateRole::Product) {
        for name in type_definitions(file.rust).iter().filter(|name| !file.is_test(name.line)) {
            places.entry(name.name).or_default().push((file.rust.path, name.line));
        }
    }
    let mut found = Vec::new();
    for (name, places) in places.iter().filter(|(_, places)| places.len() > SAME_TYPE_NAME) {
        let remedy =
            format!("{} types are called {name}, at most {SAME_TYPE_NAME}: say what it is", places.len());
        found.extend(
            places.iter().map(|(path, line)| Violation::new(*path, *line, "type-name", remedy.as_str())),
        );
    }
    found
}

/// A name that a file defines, and the line of the keyword before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefinedName<'a> {
    pub name: &'a str,
    pub line: usize,
}

/// The structs, enums, unions, traits and type aliases of a file, without associated types.
pub fn type_definitions<'a>(file: &Rust<'a>) -> Vec<DefinedName<'a>> {
    let code = &file.code;
    let mut found = Vec::new();
    let mut open = vec![Enclosing { associates: false, statement: 0 }];
    for (at, token) in code.iter().enumerate() {
        let depth = open.len();
        let Some(innermost) = open.last_mut() else { break };
        if opens(token) {
            let associates = token.is("{") && begins_impl_or_trait(&code[innermost.statement..at]);
            open.push(Enclosing { associates, statement: at + 1 });
            continue;
        }
        if closes(token) && depth > 1 {
            open.pop();
            if token.is("}")
                && let Some(outer) = open.last_mut()
            {
                outer.statement = at + 1;
            }
            continue;
        }
        if token.is(";") {
            innermost.statement = at + 1;
        }
        let defines = match token.text {
            "struct" | "enum" | "union" | "trait" => true,
            "type" => !innermost.associates,
            _ => false,
        };
        let name = code.get(at + 1).filter(|name| defines && token.is_ident() && name.is_ident());
        found.extend(name.map(|name| DefinedName { name: name.text, line: token.line }));
    }
    found
}

/// An open bracket: whether it is the body of an `impl` or trait, and the first token of the statement inside it.
struct Enclosing {
    associates: bool,
    statement: usize,
}

fn begins_impl_or_trait(statement: &[Token<'_>]) -> bool {
    let mut at = 0;
    while let Some(token) = statement.get(at) {
        at = match token.text {
            "#" => {
                let inner = statement.get(at + 1).is_some_and(|t| t.is("!"));
                closing(statement, at + 1 + usize::from(inner)) + 1
            }
            "(" => closing(statement, at) + 1,
            "pub" | "unsafe" | "auto" | "default" => at + 1,
            text => return matches!(text, "impl" | "trait"),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::scope;
    use super::*;

    fn places(files: &[(&str, &str)]) -> Vec<String> {
        let rust: Vec<_> = files.iter().map(|(path, text)| Rust::new(path, text)).collect();
        check(&scope::scoped(&rust)).iter().map(|v| format!("{}:{}", v.path, v.line)).collect()
    }

    #[test]
    fn a_name_of_more_than_three_types_is_found_everywhere() {
        let three = [
            ("crates/x/src/a.rs", "struct Entry;\nmod b { enum Entry {} }\nfn f() { type Entry = u8; }"),
            ("crates/y/src/a.rs", "impl A for B {\n    type Entry = u8;\n}"),
        ];
        assert!(places(&three).is_empty());
        let more = [three[0], three[1], ("crates/y/src/c.rs", "\npub trait Entry {}")];
        let found =
            ["crates/x/src/a.rs:1", "crates/x/src/a.rs:2", "crates/x/src/a.rs:3", "crates/y/src/c.rs:2"];
        assert_eq!(places(&more), found);
    }

    #[test]
    fn types_of_tests_and_benchmarks_are_left_out() {
        let files = [
            ("crates/x/src/a.rs", "struct Entry;\n#[cfg(test)]\nmod tests {\n    struct Entry;\n}"),
            ("e2e/src/lib.rs", "struct Entry;"),
            ("bench/src/main.rs", "struct Entry;"),
            ("crates/x/src/b.rs", "struct Entry;\nmod c { struct Entry; }"),
        ];
        assert!(places(&files).is_empty(), "{:?}", places(&files));
    }

    #[test]
    fn types_are_found_and_associated_types_are_not() {
        let text = "struct A;\nenum B {}\ntrait C { type D; fn e() { struct F; } }\n#[cfg(unix)]\nimpl C for A { type D = u8; }\n\
            type G = u8;\nfn h(union: u8) { type I = [u8; 2]; }\nunion J { k: u8 }\npub(crate) unsafe trait L { type M; }\n\
            mod n { type O = u8; }\n";
        let file = Rust::new("crates/x/src/a.rs", text);
        let names: Vec<_> = type_definitions(&file).iter().map(|name| name.name).collect();
        assert_eq!(names, ["A", "B", "C", "F", "G", "I", "J", "L", "O"]);
    }
}
