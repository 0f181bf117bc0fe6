//! Plain text tables with a heading.

use std::fmt::Write;

use crate::style::{Paint, Tone};

/// A cell and its tone.
pub type Cell = (String, Tone);

/// A cell without a tone.
pub fn plain(text: impl Into<String>) -> Cell {
    (text.into(), Tone::Plain)
}

/// The table as text. Control characters are replaced, because cells may come from a sandbox.
pub fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [Cell; N]>,
    paint: Paint,
) -> String {
    let rows: Vec<[Cell; N]> =
        rows.into_iter().map(|row| row.map(|(text, tone)| (printable(&text), tone))).collect();
    let widths: [usize; N] = std::array::from_fn(|at| {
        let widest = rows.iter().map(|row| row[at].0.chars().count()).max().unwrap_or(0);
        widest.max(heading[at].chars().count())
    });
    let mut text = String::new();
    let mut line = |cells: [(&str, Tone); N]| {
        for (at, (cell, tone)) in cells.into_iter().enumerate() {
            let gap = if at + 1 == N { 0 } else { widths[at] + 2 - cell.chars().count() };
            // Writing to a string cannot fail.
            let _ = write!(text, "{}{}", paint.text(tone, cell), " ".repeat(gap));
        }
        text.push('\n');
    };
    line(heading.map(|cell| (cell, Tone::Faint)));
    rows.iter().for_each(|row| line(std::array::from_fn(|at| (row[at].0.as_str(), row[at].1))));
    text
}

/// The text without characters that could change the terminal or the order of the text.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if changes_display(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether the character is a control character, or ends the line or changes its direction on some terminals.
pub fn changes_display(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An age with a suitable unit.
pub fn age(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_with_their_heading() {
        let rows = [[plain("a"), plain("running")], [plain("long"), plain("x\x1b[2J")]];
        assert_eq!(
            table(["ID", "STATE"], rows, Paint::None),
            "ID    STATE\na     running\nlong  x\u{fffd}[2J\n"
        );
    }

    #[test]
    fn text_of_a_sandbox_cannot_change_the_terminal() {
        assert_eq!(printable("a\x1b[2J\n"), "a\u{fffd}[2J\u{fffd}");
        assert_eq!(printable("cod\u{202e}gpj.exe\u{2069}"), "cod\u{fffd}gpj.exe\u{fffd}");
        // Letters of any direction, and what joins them.
        assert_eq!(printable("א\u{200d}ب ü"), "א\u{200d}ب ü");
    }

    #[test]
    fn ages_are_short() {
        let ages = [0, 59_999, 60_000, 3_600_000, 86_400_000 * 3].map(age);
        assert_eq!(ages, ["0s", "59s", "1m", "1h", "3d"]);
    }
}
