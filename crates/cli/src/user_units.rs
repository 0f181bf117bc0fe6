//! Puts messages of the service into the words of the command line: options instead of fields, and `4g` or `90m` instead of MB or
//! milliseconds. A message of another form stays as it is.

use crate::units::{size_text, time_text};

/// What a number of a field counts.
#[derive(Clone, Copy)]
enum Unit {
    Megabytes,
    Milliseconds,
    None,
}

/// What messages of the library advise to programs only.
const FOR_PROGRAMS: &str = " or ClientBuilder::key";

/// How the service names the field that `--no-resume` sets.
const OMIT_AUTO_RESUME: &str = "omit 'autoResume'";

/// Fields whose least value the operator may lower, with the key for it.
const MINIMA: [(&str, &str); 3] = [
    ("resources.memoryMb", "resources.minimum.memory_mb"),
    ("resources.diskMb", "resources.minimum.disk_mb"),
    ("resources.cpu", "resources.minimum.cpu"),
];

/// Fields of requests with the options that set them.
const FIELDS: [(&str, &str, Unit); 7] = [
    ("resources.memoryMb", "--memory", Unit::Megabytes),
    ("resources.diskMb", "--disk", Unit::Megabytes),
    ("resources.cpu", "--cpu", Unit::None),
    ("timeoutMs", "--timeout", Unit::Milliseconds),
    ("idleTimeoutMs", "--idle", Unit::Milliseconds),
    ("start.readyTimeoutMs", "--ready-timeout", Unit::Milliseconds),
    ("workdir", "--workdir", Unit::None),
];

/// The message with times and sizes in the units that options of sbx take.
pub fn in_user_units(message: &str) -> String {
    if let Some(refusal) = refusal(message) {
        return refusal;
    }
    let message = replaced(message, "timeoutMs of ", "", "time limit of ", Unit::Milliseconds);
    replaced(&message, "limit of ", " MB (resources.memoryMb)", "limit of ", Unit::Megabytes)
        .replace(FOR_PROGRAMS, "")
        .replace(OMIT_AUTO_RESUME, "leave out --no-resume")
}

/// A value out of its range: `FIELD is VALUE; allowed: VALUES`.
fn refusal(message: &str) -> Option<String> {
    let (field, rest) = message.split_once(" is ")?;
    let (_, option, unit) = FIELDS.iter().find(|(name, ..)| *name == field)?;
    let (got, allowed) = rest.split_once("; allowed: ")?;
    let words = |text: &str| {
        let words =
            text.split(' ').map(|word| word.parse().map_or_else(|_| word.to_owned(), |n| unit.text(n)));
        words.collect::<Vec<_>>().join(" ")
    };
    let minimum = MINIMA.iter().find(|(name, _)| *name == field && is_below(got, allowed));
    let lower =
        minimum.map_or_else(String::new, |(_, key)| format!("; the operator can allow less with {key}"));
    Some(format!("{option} is {}; allowed: {}{lower}", words(got), words(allowed)))
}

/// Whether a value is below the first allowed one.
fn is_below(got: &str, allowed: &str) -> bool {
    let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok();
    digits(got).zip(digits(allowed)).is_some_and(|(got, least)| got < least)
}

/// Replaces a number between two texts, together with them.
fn replaced(message: &str, before: &str, after: &str, instead: &str, unit: Unit) -> String {
    let found = message.find(before).and_then(|at| {
        let rest = &message[at + before.len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..digits].parse().ok()?;
        Some((at, number, rest[digits..].strip_prefix(after)?))
    });
    match found {
        Some((at, number, rest)) => format!("{}{instead}{}{rest}", &message[..at], unit.text(number)),
        None => message.to_owned(),
    }
}

impl Unit {
    fn text(self, number: u64) -> String {
        match self {
            Self::Megabytes => size_text(number),
            Self::Milliseconds => time_text(number),
            Self::None => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_values_are_shown_as_they_are_typed() {
        for (message, shown) in [
            (
                "resources.memoryMb is 1024; allowed: 2048 to 16384",
                "--memory is 1g; allowed: 2g to 16g; the operator can allow less with resources.minimum.memory_mb",
            ),
            (
                "resources.diskMb is 1536; allowed: 5120 to 51200",
                "--disk is 1536m; allowed: 5g to 50g; the operator can allow less with resources.minimum.disk_mb",
            ),
            (
                "resources.cpu is 1; allowed: 2, 4 or 8",
                "--cpu is 1; allowed: 2, 4 or 8; the operator can allow less with resources.minimum.cpu",
            ),
            ("resources.memoryMb is 32768; allowed: 2048 to 16384", "--memory is 32g; allowed: 2g to 16g"),
            ("timeoutMs is 90000000; allowed: 1 to 86400000", "--timeout is 25h; allowed: 1ms to 24h"),
            ("resources.cpu is 3; allowed: 2, 4 or 8", "--cpu is 3; allowed: 2, 4 or 8"),
            ("image is 'x'; allowed: 'y'", "image is 'x'; allowed: 'y'"),
            ("the sandbox is paused", "the sandbox is paused"),
        ] {
            assert_eq!(in_user_units(message), shown);
        }
    }

    #[test]
    fn limits_that_were_reached_have_the_units_of_the_options() {
        for (message, shown) in [
            (
                "the command was killed at its timeoutMs of 90000",
                "the command was killed at its time limit of 1m30s",
            ),
            (
                "the sandbox ran out of memory at its limit of 2048 MB (resources.memoryMb)",
                "the sandbox ran out of memory at its limit of 2g",
            ),
            ("its limit of 7 files", "its limit of 7 files"),
            (
                "the sandbox is paused; resume it first, or omit 'autoResume'",
                "the sandbox is paused; resume it first, or leave out --no-resume",
            ),
            ("no API key; set SANDBOXD_API_KEY or ClientBuilder::key.", "no API key; set SANDBOXD_API_KEY."),
        ] {
            assert_eq!(in_user_units(message), shown);
        }
    }
}
