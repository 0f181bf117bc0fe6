//! Quotes text of clients for messages: these go into logs and terminals, so the text is escaped and shortened.

/// The most characters of a value in a message.
const MAX_CHARS: usize = 64;

/// The text quoted, escaped and shortened.
pub fn quoted(text: &str) -> String {
    format!("'{}'", escaped(text))
}

/// Without quotes, for a name that is part of a longer one: `env.NAME`.
pub fn escaped(text: &str) -> String {
    let start: String = text.chars().take(MAX_CHARS).collect();
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("{}{more}", start.escape_debug())
}

/// A text of another program as part of a message: what cannot be printed is escaped, and quotes stay. The caller bounds its length.
pub fn printable(text: &str) -> String {
    let of_char = |c: char| match c {
        '\'' | '"' | '\\' => c.to_string(),
        _ => c.escape_debug().to_string(),
    };
    text.chars().map(of_char).collect()
}

/// A list of alternatives, such as `2, 4 or 8`.
pub fn alternatives(names: &[String]) -> String {
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_short_and_printable() {
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("ü b"), "'ü b'");
        assert_eq!(quoted("it's\r\n\x1b[31m\0"), r"'it\'s\r\n\u{1b}[31m\0'");
        assert_eq!(quoted(&"€".repeat(64)), format!("'{}'", "€".repeat(64)));
        assert_eq!(escaped(&"€".repeat(65)), format!("{}...", "€".repeat(64)));
    }

    #[test]
    fn printable_text_keeps_its_quotes_and_its_length() {
        assert_eq!(printable("it's \"ü\" \\\r\n\x1b[31m\0"), "it's \"ü\" \\\\r\\n\\u{1b}[31m\\0");
        assert_eq!(printable(&"€".repeat(65)), "€".repeat(65));
    }

    #[test]
    fn the_last_alternative_follows_or() {
        let listed =
            |names: &[&str]| alternatives(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(listed(&[]), "");
        assert_eq!(listed(&["2"]), "2");
        assert_eq!(listed(&["2", "4"]), "2 or 4");
        assert_eq!(listed(&["2", "4", "8"]), "2, 4 or 8");
    }
}
