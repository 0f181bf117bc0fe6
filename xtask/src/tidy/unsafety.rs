//! `unsafe` only in the crates that talk to the kernel, and each block with its proof directly above.

use super::Violation;
use super::source::Rust;

const CRATES: [&str; 6] = ["agent", "driver-host", "driver-oci", "launcher", "net", "rootfs"];

/// Finds `unsafe` without a proof above it.
pub fn check(file: &Rust<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for token in file.code.iter().filter(|t| t.is("unsafe")) {
        if !CRATES.contains(&file.crate_folder()) {
            let remedy = format!(
                "unsafe is allowed only in {}; use rustix, or add a safe function there",
                CRATES.join(", ")
            );
            found.push(Violation::new(file.path, token.line, "unsafe-crate", remedy));
        } else if !has_proof(file, token.line) {
            let remedy = "add a `// SAFETY:` comment directly above that proves each condition";
            found.push(Violation::new(file.path, token.line, "unsafe-proof", remedy));
        }
    }
    found
}

/// Whether the comment above the statement at `line` has a proof.
fn has_proof(file: &Rust<'_>, line: usize) -> bool {
    let text = |line: usize| file.lines.get(line.wrapping_sub(1)).map_or("", |l| l.trim());
    let mut at = line;
    // Find the first line of the statement: the line above it ends a statement, opens a block, or is a comment or blank.
    while at > 1 {
        let above = text(at - 1);
        if above.is_empty() || above.starts_with("//") || above.ends_with([';', '{', '}', ',']) {
            break;
        }
        at -= 1;
    }
    let is_proof = |comment: &str| comment.contains("SAFETY:") || comment.contains("# Safety");
    while at > 1 && (text(at - 1).starts_with("//") || text(at - 1).starts_with("#[")) {
        at -= 1;
        if is_proof(text(at)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Rust::new(path, text)).into_iter().map(|v| v.rule).collect()
    }

    #[test]
    fn unsafe_elsewhere_is_found() {
        assert_eq!(rules("crates/engine/src/a.rs", "// SAFETY: b\nunsafe { c }"), ["unsafe-crate"]);
        assert!(
            rules("crates/engine/src/a.rs", "#![forbid(unsafe_code)] // unsafe\nfn a() { \"unsafe\"; }")
                .is_empty()
        );
    }

    #[test]
    fn unsafe_without_a_proof_is_found() {
        let path = "crates/agent/src/a.rs";
        assert_eq!(rules(path, "fn a() {\n  unsafe { c }\n}"), ["unsafe-proof"]);
        assert_eq!(rules(path, "// SAFETY: b\nlet x = 1;\nunsafe { c }"), ["unsafe-proof"]);
        assert_eq!(rules(path, "// SAFETY: b\n\nunsafe { c }"), ["unsafe-proof"]);
        assert!(rules(path, "// SAFETY: b\n// and d\nunsafe { c }").is_empty());
        assert!(rules(path, "// SAFETY: b\nlet x =\n  unsafe { c };").is_empty());
        assert!(rules(path, "/// # Safety\n/// b\n#[inline]\npub unsafe fn a() {}").is_empty());
    }
}
