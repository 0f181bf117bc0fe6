use super::*;

fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|(path, text)| Rust::new(path, text)).collect();
    check(&files).into_iter().map(|v| v.to_string()).collect()
}

#[test]
fn two_modules_that_use_each_other_are_found() {
    let found = found(&[
        ("crates/x/src/lib.rs", "mod a; mod b;"),
        ("crates/x/src/a.rs", "use crate::b::B;"),
        ("crates/x/src/b.rs", "fn b() {\n  super::a::go();\n}"),
    ]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("crates/x/src/a.rs:1: module-cycle: a uses b"), "{found:?}");
    assert!(found[0].contains("b uses a at crates/x/src/b.rs:2"), "{found:?}");
}

#[test]
fn one_direction_and_parent_and_child_pass() {
    let files = [
        ("crates/x/src/lib.rs", "mod a; mod b; pub use a::A;"),
        ("crates/x/src/a.rs", "mod deep; use deep::D; use std::{io, fmt}; type B = crate::b::B;"),
        ("crates/x/src/a/deep.rs", "use super::A; use crate::b;"),
        (
            "crates/x/src/b.rs",
            "use crate::{self as root, Other}; #[cfg(test)]\nmod tests { use crate::a::A; }",
        ),
    ];
    assert_eq!(found(&files), [""; 0]);
}

#[test]
fn a_cycle_through_groups_and_children_is_found() {
    let found = found(&[
        ("crates/x/src/a/one.rs", "use crate::{c, b::{self, B}};"),
        ("crates/x/src/b.rs", "use super::c::C as D;"),
        ("crates/x/src/c/two.rs", "use super::super::a::one;"),
        ("crates/x/src/a.rs", ""),
        ("crates/x/src/c.rs", ""),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a uses c"), "{found:?}");
}

#[test]
fn a_cycle_behind_a_reexport_is_found() {
    let found = found(&[
        ("crates/x/src/lib.rs", "mod a; mod b; pub use b::B;"),
        ("crates/x/src/a.rs", "use crate::B;"),
        ("crates/x/src/b.rs", "use crate::a::A;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn siblings_below_one_module_are_checked() {
    let found = found(&[
        ("crates/x/src/a.rs", ""),
        ("crates/x/src/a/one.rs", "use super::two::T;"),
        ("crates/x/src/a/two.rs", "use crate::a::one;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn modules_of_different_crates_are_independent() {
    let files = [("crates/x/src/a.rs", "use crate::b;"), ("crates/y/src/b.rs", "use crate::a;")];
    assert_eq!(found(&files), [""; 0]);
}
