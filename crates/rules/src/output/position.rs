//! Output offsets: the number of bytes of each stream that a reader has read.
//!
//! Clients store them (as a cursor, or the id of a server-sent event), so the text is strict: one spelling per offset. Reading can
//! continue from any offset, also within one write.

use std::fmt;
use std::str::FromStr;

/// Bytes of each stream from the beginning. The default is the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OutputPosition {
    pub stdout: u64,
    pub stderr: u64,
}

/// The text is not a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an output offset is two byte counts separated by a dot, such as 120.33")]
pub struct BadOutputPosition;

impl OutputPosition {
    /// Whether a reader here has read at least as much as one at `other`.
    pub fn covers(self, other: Self) -> bool {
        self.stdout >= other.stdout && self.stderr >= other.stderr
    }

    /// The maximum of each stream.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { stdout: self.stdout.max(other.stdout), stderr: self.stderr.max(other.stderr) }
    }
}

impl fmt::Display for OutputPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.stdout, self.stderr)
    }
}

impl FromStr for OutputPosition {
    type Err = BadOutputPosition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (stdout, stderr) = text.split_once('.').ok_or(BadOutputPosition)?;
        Ok(Self { stdout: number(stdout)?, stderr: number(stderr)? })
    }
}

fn number(text: &str) -> Result<u64, BadOutputPosition> {
    let is_canonical =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    // Databases and JSON numbers hold at most 63 bits.
    let number = text.parse().ok().filter(|number| i64::try_from(*number).is_ok());
    number.filter(|_| is_canonical).ok_or(BadOutputPosition)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn one_spelling_for_one_position() {
        assert_eq!("120.33".parse(), Ok(OutputPosition { stdout: 120, stderr: 33 }));
        assert_eq!("0.0".parse(), Ok(OutputPosition::default()));
        for text in [
            "",
            ".",
            "1",
            "1.",
            ".1",
            "01.2",
            "1.02",
            "+1.2",
            "1.2.3",
            "-1.0",
            " 1.2",
            "1.2 ",
            "00.0",
            "1.9223372036854775808",
        ] {
            assert_eq!(text.parse::<OutputPosition>(), Err(BadOutputPosition), "{text:?}");
        }
    }

    #[test]
    fn an_offset_covers_another_only_in_both_streams() {
        let at = |stdout, stderr| OutputPosition { stdout, stderr };
        assert!(at(2, 2).covers(at(2, 1)) && !at(2, 2).covers(at(3, 0)));
        assert_eq!(at(2, 5).max(at(3, 1)), at(3, 5));
    }

    proptest! {
        #[test]
        fn text_and_back(stdout in 0..=i64::MAX as u64, stderr in 0..=i64::MAX as u64) {
            let position = OutputPosition { stdout, stderr };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }
    }
}
