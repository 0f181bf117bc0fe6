//! Attributes that silence a lint or test need a reason: no `allow` (an `expect` fails when it is no longer needed), no `expect` or
//! `ignore` without a reason.

use super::Violation;
use super::source::{Rust, attributes};

/// Finds attributes that silence a lint or a test without a reason.
pub fn check(file: &Rust<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for attribute in attributes(&file.code) {
        let body = attribute.body(&file.code);
        let line = file.code[attribute.start].line;
        let has = |word: &str| body.iter().any(|t| t.is(word));
        // `cfg_attr(test, allow(…))` contains one too.
        let calls = |word: &str| body.windows(2).any(|pair| pair[0].is(word) && pair[1].is("("));
        if calls("allow") {
            let remedy = "use #[expect(…, reason = \"…\")], which fails when it is no longer needed";
            found.push(Violation::new(file.path, line, "allow", remedy));
        }
        if calls("expect") && !has("reason") {
            found.push(Violation::new(file.path, line, "expect-reason", "add reason = \"…\""));
        }
        if body.len() == 1 && has("ignore") {
            found.push(Violation::new(file.path, line, "ignore-reason", "add a reason: #[ignore = \"…\"]"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        check(&Rust::new("crates/x/src/a.rs", text)).into_iter().map(|v| v.rule).collect()
    }

    #[test]
    fn attributes_without_a_reason_are_found() {
        assert_eq!(rules("#[allow(dead_code)]\nfn a() {}"), ["allow"]);
        assert_eq!(rules("#![allow(dead_code, reason = \"b\")]"), ["allow"]);
        assert_eq!(rules("#[cfg_attr(test, allow(x))]\nfn a() {}"), ["allow"]);
        assert_eq!(rules("#[expect(dead_code)]\nfn a() {}"), ["expect-reason"]);
        assert_eq!(rules("#[test]\n#[ignore]\nfn a() {}"), ["ignore-reason"]);
    }

    #[test]
    fn attributes_with_a_reason_pass() {
        assert!(rules("#[expect(dead_code, reason = \"b\")]\nfn a() {}").is_empty());
        assert!(rules("#[test]\n#[ignore = \"takes an hour\"]\nfn a() {}").is_empty());
        assert!(rules("fn allow() { allow(1); a[allow(2)]; }").is_empty());
    }
}
