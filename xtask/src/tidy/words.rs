//! Finds words in the documents that the glossary replaced. Only words without another use in this project are listed:
//! `place` or `note` are replaced as terms, but remain ordinary words.

use super::Violation;
use super::source::Source;

/// The replaced word and the term of `docs/glossary.md`.
const REPLACED: [(&str, &str); 12] = [
    ("book of policies", "policy registry"),
    ("errand", "file operation"),
    ("errands", "file operations"),
    ("happening", "event"),
    ("happenings", "events"),
    ("keeper", "log writer"),
    ("passenger", "follower"),
    ("pilot", "leader"),
    ("postman", "event uploader"),
    ("shelf", "warm pool"),
    ("shelves", "warm pool"),
    ("wall it is", "isolation backend"),
];

const GLOSSARY: &str = "docs/glossary.md";
/// The glossary lists the words, and the changelog names what was renamed.
const EXEMPT: [&str; 2] = [GLOSSARY, "CHANGELOG.md"];

pub fn check(file: &Source) -> Vec<Violation> {
    if !file.path.ends_with(".md") || EXEMPT.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let line = line.to_lowercase();
        for (word, term) in REPLACED {
            if has_word(&line, word) {
                let remedy = format!("'{word}' is not a term of {GLOSSARY}; write '{term}'");
                found.push(Violation::new(&file.path, at + 1, "replaced-word", remedy));
            }
        }
    }
    found
}

/// Parts of paths and identifiers are left to the renaming of what they name.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
    line.match_indices(word).any(|(at, _)| {
        let after = &line[at + word.len()..];
        let ends = !after.starts_with(joins)
            || after.starts_with('.') && !after[1..].starts_with(char::is_alphanumeric);
        !line[..at].ends_with(joins) && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> usize {
        check(&Source { path: path.into(), text: text.into() }).len()
    }

    #[test]
    fn a_replaced_word_in_a_document_is_found() {
        assert_eq!(rules("docs/a.md", "An Errand.\nEvents of the postman\n"), 2);
        assert_eq!(
            rules("docs/a.md", "See `docs/adr/0010-errands-among-files.md` and errand.rs, wallet, pilots\n"),
            0
        );
        assert_eq!(rules(GLOSSARY, "errand\n"), 0);
        assert_eq!(rules("crates/a/src/b.rs", "// errand\n"), 0);
    }
}
