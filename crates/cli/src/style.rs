//! Colours: used on terminals that support them, unless NO_COLOR is set.

use std::io::IsTerminal;

/// The meaning of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Bold,
    Good,
    Waiting,
    Bad,
    Faint,
}

/// Whether the output of a stream is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Colours,
    None,
}

impl Paint {
    /// Colours for a terminal that shows them.
    pub fn of(stream: &impl IsTerminal) -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        Self::decide(stream.is_terminal(), &variable("NO_COLOR"), &variable("TERM"))
    }

    fn decide(terminal: bool, no_color: &str, term: &str) -> Self {
        if terminal && no_color.is_empty() && term != "dumb" { Self::Colours } else { Self::None }
    }

    /// The text in this tone.
    pub fn text(self, tone: Tone, text: &str) -> String {
        let code = match (self, tone) {
            (Self::None, _) | (_, Tone::Plain) => return text.to_owned(),
            (Self::Colours, Tone::Bold) => "1",
            (Self::Colours, Tone::Good) => "32",
            (Self::Colours, Tone::Waiting) => "33",
            (Self::Colours, Tone::Bad) => "31",
            (Self::Colours, Tone::Faint) => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_capable_terminal() {
        assert_eq!(Paint::decide(true, "", "xterm"), Paint::Colours);
        for (terminal, no_color, term) in [(false, "", "xterm"), (true, "1", "xterm"), (true, "", "dumb")] {
            assert_eq!(Paint::decide(terminal, no_color, term), Paint::None);
        }
        assert_eq!(Paint::None.text(Tone::Bad, "x"), "x");
        assert_eq!(Paint::Colours.text(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
