//! Quotes text of clients for messages: these go into logs and terminals, so the text is escaped and shortened.

/// The most characters of a value in a message.
const SHOWN_CHARS: usize = 64;

/// The text quoted, escaped and shortened.
pub fn shown(text: &str) -> String {
    format!("'{}'", shown_name(text))
}

/// Without quotes, for a name that is part of a longer one: `env.NAME`.
pub fn shown_name(text: &str) -> String {
    let start: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("{}{more}", start.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_printable() {
        assert_eq!(shown(""), "''");
        assert_eq!(shown("ü b"), "'ü b'");
        assert_eq!(shown("it's\r\n\x1b[31m\0"), r"'it\'s\r\n\u{1b}[31m\0'");
        assert_eq!(shown(&"€".repeat(64)), format!("'{}'", "€".repeat(64)));
        assert_eq!(shown_name(&"€".repeat(65)), format!("{}...", "€".repeat(64)));
    }
}
