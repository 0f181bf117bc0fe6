//! Finds words in documents and Rust code that the glossary replaced. Only words without another use in this project are
//! listed: `place` or `note` are replaced as terms, but remain ordinary words.

use super::Violation;
use super::source::SourceFile;

/// The replaced word and the term of `docs/glossary.md`.
const REPLACED: [(&str, &str); 19] = [
    ("book of policies", "policy registry"),
    ("errand", "file operation"),
    ("errands", "file operations"),
    ("happening", "event"),
    ("happenings", "events"),
    ("hunt", "process-tree kill"),
    ("keeper", "log writer"),
    ("mailer", "upload queue"),
    ("noter", "event journal"),
    ("passenger", "follower"),
    ("pilot", "leader"),
    ("postman", "event uploader"),
    ("shelf", "warm pool"),
    ("shelves", "warm pool"),
    ("strange key", "unknown key"),
    ("tended", "detached"),
    ("trouble", "error"),
    ("troubles", "errors"),
    ("wall it is", "isolation backend"),
];

const GLOSSARY: &str = "docs/glossary.md";
/// The glossary and this file list the words, and the changelog names what was renamed.
const EXEMPT: [&str; 3] = [GLOSSARY, "CHANGELOG.md", "xtask/src/tidy/words.rs"];

/// Finds words that the glossary replaced.
pub fn check(file: &SourceFile) -> Vec<Violation> {
    let words_of: fn(&str) -> String = match file.path.rsplit_once('.') {
        _ if EXEMPT.contains(&file.path.as_str()) => return Vec::new(),
        Some((_, "md")) => str::to_lowercase,
        Some((_, "rs")) => words_of_code,
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let line = words_of(line);
        for (word, term) in REPLACED {
            if has_word(&line, word) {
                let remedy = format!("'{word}' is not a term of {GLOSSARY}; write '{term}'");
                found.push(Violation::new(&file.path, at + 1, "replaced-word", remedy));
            }
        }
    }
    found
}

/// The words of comments, texts and identifiers: `PostmanLink` and `postman_link` both have the word `postman`.
fn words_of_code(line: &str) -> String {
    let mut words = String::with_capacity(line.len());
    let mut after_lower_case = false;
    for c in line.chars() {
        if after_lower_case && c.is_uppercase() {
            words.push(' ');
        }
        after_lower_case = c.is_lowercase();
        match c {
            c if c.is_alphanumeric() => words.extend(c.to_lowercase()),
            _ => words.push(' '),
        }
    }
    words
}

/// In documents, parts of paths and identifiers are left to the renaming of what they name.
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
        check(&SourceFile { path: path.into(), text: text.into() }).len()
    }

    #[test]
    fn a_replaced_word_in_a_document_is_found() {
        assert_eq!(rules("docs/a.md", "An Errand.\nEvents of the postman\n"), 2);
        assert_eq!(
            rules("docs/a.md", "See `docs/adr/0010-errands-among-files.md` and errand.rs, wallet, pilots\n"),
            0
        );
        assert_eq!(rules(GLOSSARY, "errand\n"), 0);
        assert_eq!(rules("dev.d/a.sh", "# errand\n"), 0);
    }

    #[test]
    fn a_replaced_word_in_rust_code_is_found() {
        for line in [
            "// An errand.",
            "mod shelves;",
            "struct PostmanLink;",
            "fn first_errand() {}",
            "self.keeper.run();",
            "use super::trouble::Outcome;",
            "let path = \"pilot\";",
            "fn strange_key() {}",
        ] {
            assert_eq!(rules("crates/a/src/b.rs", line), 1, "{line}");
        }
        for line in
            ["let extended = intended(1);", "// Troubleshooting", "struct Bookkeeper;", "let shelfless = 1;"]
        {
            assert_eq!(rules("crates/a/src/b.rs", line), 0, "{line}");
        }
    }
}
