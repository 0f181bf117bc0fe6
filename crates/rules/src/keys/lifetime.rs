//! How long a key is valid: `90d`, `2w`, `12h`, `30m`, `45s`.

use std::str::FromStr;

const SECOND_MS: u64 = 1000;
const UNITS: [(char, u64); 5] =
    [('s', SECOND_MS), ('m', 60 * SECOND_MS), ('h', 3600 * SECOND_MS), ('d', DAY_MS), ('w', 7 * DAY_MS)];
const DAY_MS: u64 = 24 * 3600 * SECOND_MS;
/// Ten years. A key that lives longer is one without an end.
const MAX_MS: u64 = 3650 * DAY_MS;

/// The time from the creation of a key to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLifetime {
    pub ms: u64,
}

/// The text is no lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "allowed: a whole number of seconds, minutes, hours, days or weeks, such as 45s, 30m, 12h, 90d or 2w; at most 3650d"
)]
pub struct BadLifetime;

impl FromStr for KeyLifetime {
    type Err = BadLifetime;

    fn from_str(text: &str) -> Result<Self, BadLifetime> {
        let unit = text.chars().next_back().ok_or(BadLifetime)?;
        let (_, unit_ms) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or(BadLifetime)?;
        let digits = &text[..text.len() - unit.len_utf8()];
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadLifetime);
        }
        let count: u64 = digits.parse().map_err(|_| BadLifetime)?;
        let ms = count.checked_mul(unit_ms).filter(|ms| (SECOND_MS..=MAX_MS).contains(ms));
        Ok(Self { ms: ms.ok_or(BadLifetime)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_a_unit_and_bounds() {
        for (text, ms) in [
            ("1s", 1000),
            ("30m", 1_800_000),
            ("12h", 43_200_000),
            ("90d", 7_776_000_000),
            ("2w", 1_209_600_000),
            ("3650d", 315_360_000_000),
        ] {
            let lifetime: KeyLifetime = text.parse().unwrap();
            assert_eq!(lifetime.ms, ms, "{text}");
        }
        for wrong in [
            "",
            "d",
            "90",
            "0d",
            "-1d",
            "+1d",
            "1.5h",
            "90 d",
            "3651d",
            "522w",
            "1y",
            "99999999999999999999d",
            "9é",
        ] {
            assert_eq!(wrong.parse::<KeyLifetime>(), Err(BadLifetime), "{wrong}");
        }
    }
}
