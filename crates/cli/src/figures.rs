//! Figures of code on terminals that can show them: by the protocol of kitty, by that of iTerm2, or as sixels.
//!
//! The escape sequences contain a figure as base64 or as pixels, never text of a sandbox.

mod png;
mod sixel;

use std::fmt::Write;
use std::io::IsTerminal;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::tty;

/// The size of the parts in which kitty accepts an image.
const KITTY_PART_BYTES: usize = 4096;
/// Asks a terminal for its attributes. The answer ends with `c`; 4 among its numbers stands for sixels.
const ATTRIBUTES_REQUEST: &str = "\x1b[c";
const ATTRIBUTES_END: u8 = b'c';
const SIXEL_ATTRIBUTE: &str = "4";

/// How a terminal shows images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graphics {
    Kitty,
    Iterm2,
    Sixel,
}

/// What the environment says about the terminal.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    As(Graphics),
    /// The terminal itself has to be asked.
    Unknown,
}

/// An image as a result of code has it.
#[derive(Debug, Clone, Copy)]
pub enum Figure<'a> {
    Png(&'a [u8]),
    Jpeg(&'a [u8]),
}

impl Graphics {
    /// What the terminal of this program can show; `None` if the output is not a terminal, or if it shows no images.
    pub fn of_terminal() -> Option<Self> {
        if !std::io::stdout().is_terminal() {
            return None;
        }
        match named(|name| std::env::var(name).ok()) {
            Named::As(graphics) => Some(graphics),
            // The answer arrives on standard input, which may be a file with the code.
            Named::Unknown if !tty::is_there() => None,
            Named::Unknown => {
                let answer = tty::ask(ATTRIBUTES_REQUEST, ATTRIBUTES_END).ok()?;
                has_sixels(&answer).then_some(Self::Sixel)
            }
        }
    }

    /// The bytes that show a figure; `None` if the terminal cannot show this one.
    pub fn show(self, figure: Figure<'_>) -> Option<String> {
        match (self, figure) {
            (Self::Kitty, Figure::Png(image)) => Some(kitty(image)),
            (Self::Iterm2, Figure::Png(image) | Figure::Jpeg(image)) => Some(iterm2(image)),
            (Self::Sixel, Figure::Png(image)) => Some(sixel::encode(&png::decode(image)?)),
            (Self::Kitty | Self::Sixel, Figure::Jpeg(_)) => None,
        }
    }
}

/// Terminals that name themselves. Within tmux or screen their names are inherited, but images do not pass.
fn named(variable: impl Fn(&str) -> Option<String>) -> Named {
    let is = |name: &str, value: &str| variable(name).as_deref() == Some(value);
    let term = variable("TERM").unwrap_or_default();
    if variable("TMUX").is_some() || term.starts_with("tmux") || term.starts_with("screen") {
        return Named::Unknown;
    }
    if variable("KITTY_WINDOW_ID").is_some()
        || term == "xterm-kitty"
        || term == "xterm-ghostty"
        || is("TERM_PROGRAM", "ghostty")
    {
        return Named::As(Graphics::Kitty);
    }
    // The second is passed on by ssh.
    if is("TERM_PROGRAM", "iTerm.app") || is("LC_TERMINAL", "iTerm2") || is("TERM_PROGRAM", "WezTerm") {
        return Named::As(Graphics::Iterm2);
    }
    Named::Unknown
}

/// Whether the attributes of a terminal, such as `ESC [ ? 6 2 ; 4 c`, contain sixels.
fn has_sixels(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let attributes = text.rsplit_once('?').map(|(_, rest)| rest.trim_end_matches('c'));
    attributes.is_some_and(|attributes| attributes.split(';').any(|attribute| attribute == SIXEL_ATTRIBUTE))
}

fn kitty(image: &[u8]) -> String {
    let encoded = STANDARD.encode(image);
    // Base64 is ASCII, so that every part is text.
    let parts: Vec<String> = encoded
        .as_bytes()
        .chunks(KITTY_PART_BYTES)
        .map(|part| String::from_utf8_lossy(part).into())
        .collect();
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        let head = if at == 0 { "a=T,f=100," } else { "" };
        let more = u8::from(at + 1 < parts.len());
        // Writing to a string cannot fail.
        let _ = write!(text, "\x1b_G{head}m={more};{part}\x1b\\");
    }
    text.push('\n');
    text
}

fn iterm2(image: &[u8]) -> String {
    format!("\x1b]1337;File=inline=1;size={}:{}\x07\n", image.len(), STANDARD.encode(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_known_by_their_variables() {
        let of = |variables: &[(&str, &str)]| {
            named(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        for (variables, expected) in [
            (&[("TERM", "xterm-kitty")][..], Named::As(Graphics::Kitty)),
            (&[("TERM", "xterm-256color"), ("KITTY_WINDOW_ID", "1")], Named::As(Graphics::Kitty)),
            (&[("TERM_PROGRAM", "ghostty")], Named::As(Graphics::Kitty)),
            (&[("TERM_PROGRAM", "iTerm.app")], Named::As(Graphics::Iterm2)),
            (&[("TERM", "xterm-256color"), ("LC_TERMINAL", "iTerm2")], Named::As(Graphics::Iterm2)),
            (&[("TERM_PROGRAM", "WezTerm")], Named::As(Graphics::Iterm2)),
            (&[("TERM", "xterm-256color")], Named::Unknown),
            (&[("TERM", "tmux-256color"), ("KITTY_WINDOW_ID", "1")], Named::Unknown),
            (&[("TERM", "xterm-kitty"), ("TMUX", "/tmp/tmux")], Named::Unknown),
            (&[], Named::Unknown),
        ] {
            assert_eq!(of(variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn the_attributes_of_a_terminal_name_sixels() {
        for (answer, expected) in [
            (&b"\x1b[?62;4;22c"[..], true),
            (b"x\x1b[?4c", true),
            (b"\x1b[?62;22;44c", false),
            (b"\x1b[?1;2c", false),
            (b"", false),
            (b"4c", false),
        ] {
            assert_eq!(has_sixels(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn images_are_sent_in_the_parts_of_the_protocol() {
        let image = vec![7; 4000];
        let text = Graphics::Kitty.show(Figure::Png(&image)).unwrap();
        let parts: Vec<&str> = text.split("\x1b\\").collect();
        assert_eq!((parts.len(), parts[2]), (3, "\n"));
        let encoded: String = parts[..2].iter().filter_map(|part| part.split(';').nth(1)).collect();
        assert_eq!(STANDARD.decode(encoded).unwrap(), image);
        assert!(parts[0].starts_with("\x1b_Ga=T,f=100,m=1;") && parts[1].starts_with("\x1b_Gm=0;"));
        assert_eq!(Graphics::Kitty.show(Figure::Jpeg(&image)), None);
        let text = Graphics::Iterm2.show(Figure::Jpeg(b"abc")).unwrap();
        assert_eq!(text, "\x1b]1337;File=inline=1;size=3:YWJj\x07\n");
        assert_eq!(Graphics::Sixel.show(Figure::Png(b"no image")), None);
    }
}
