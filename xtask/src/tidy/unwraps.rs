//! `unwrap` and `expect` outside tests need a reason: a comment on the line, or `#[expect(clippy::…, reason = "…")]` around it.
//! Clippy requires the attribute; the comment is for calls in macros, which clippy does not check.

use super::Violation;
use super::source::{Rust, attributed_end, attributes};

/// Finds `unwrap` and `expect` without a reason.
pub fn check(file: &Rust<'_>) -> Vec<Violation> {
    let code = &file.code;
    let excused = excused_lines(file);
    let mut found = Vec::new();
    for at in 1..code.len().saturating_sub(1) {
        let call =
            (code[at].is("unwrap") || code[at].is("expect")) && code[at - 1].is(".") && code[at + 1].is("(");
        let line = code[at].line;
        if !call || file.is_test(line) || excused.iter().any(|range| range.contains(&line)) {
            continue;
        }
        if file.comment_on(line).is_none_or(str::is_empty) {
            let remedy =
                format!("handle the failure, or add a comment why {} cannot fail here", code[at].text);
            found.push(Violation::new(file.path, line, "unwrap", remedy));
        }
    }
    found
}

fn excused_lines(file: &Rust<'_>) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut ranges = Vec::new();
    for attribute in attributes(&file.code) {
        let body = attribute.body(&file.code);
        let has = |word: &str| body.iter().any(|t| t.is(word));
        if !(has("expect") && has("reason") && (has("unwrap_used") || has("expect_used"))) {
            continue;
        }
        if attribute.inner {
            ranges.push(1..=file.lines.len());
        } else {
            let end = attributed_end(&file.code, &attribute);
            ranges.push(file.code[attribute.start].line..=file.code[end].end_line);
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Rust::new("crates/x/src/a.rs", text)).into_iter().map(|v| v.line).collect()
    }

    #[test]
    fn an_unexplained_call_is_found() {
        assert_eq!(lines("fn a() {\n  b.unwrap();\n  c.expect(\"d\");\n}"), [2, 3]);
        assert_eq!(lines("fn a() {\n  b.unwrap(); //\n}"), [2]);
    }

    #[test]
    fn reasons_tests_and_other_calls_pass() {
        assert!(lines("fn a() { b.unwrap() } // b was set above").is_empty());
        assert!(
            lines("#[expect(clippy::unwrap_used, reason = \"b\")]\nfn a() {\n  b.unwrap();\n}").is_empty()
        );
        assert!(lines("#[test]\nfn a() {\n  b.unwrap();\n}").is_empty());
        assert!(lines("fn a() { b.unwrap_or(1); expect(2); \"x.unwrap()\"; }").is_empty());
    }

    #[test]
    fn a_reason_covers_its_own_item_only() {
        let text = "fn x() {\n  #[expect(clippy::expect_used, reason = \"b\")]\n  let a = b.expect(\"c\");\n  d.expect(\"e\");\n}";
        assert_eq!(lines(text), [4]);
    }
}
