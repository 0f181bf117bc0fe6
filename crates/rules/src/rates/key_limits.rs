//! The rate limits of a single key: those of its account, none, or one number for all.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// Each counted request takes memory for a minute, so a larger number is "no limit".
pub const PER_MINUTE_MAX: u32 = 1_000_000;
const NONE: &str = "none";
const OF_ACCOUNT: &str = "account";

/// The rate limits of a key, which its creator chooses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyLimits {
    /// Those that the configuration has for its account.
    #[default]
    OfAccount,
    Unlimited,
    /// This number of requests of each kind per minute.
    PerMinute(NonZeroU32),
}

/// The text names no limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("allowed: '{NONE}', '{OF_ACCOUNT}', or a number of requests per minute from 1 to {PER_MINUTE_MAX}")]
pub struct BadKeyLimits;

impl KeyLimits {
    /// As it is stored: 0 is unlimited.
    pub fn stored(self) -> Option<u32> {
        match self {
            Self::OfAccount => None,
            Self::Unlimited => Some(0),
            Self::PerMinute(count) => Some(count.get()),
        }
    }

    /// From what [`KeyLimits::stored`] returned.
    pub fn from_stored(stored: Option<u32>) -> Self {
        match stored {
            None => Self::OfAccount,
            Some(count) => NonZeroU32::new(count).map_or(Self::Unlimited, Self::PerMinute),
        }
    }
}

impl FromStr for KeyLimits {
    type Err = BadKeyLimits;

    fn from_str(text: &str) -> Result<Self, BadKeyLimits> {
        match text {
            NONE => Ok(Self::Unlimited),
            OF_ACCOUNT => Ok(Self::OfAccount),
            _ => {
                let count: NonZeroU32 = text.parse().map_err(|_| BadKeyLimits)?;
                if count.get() > PER_MINUTE_MAX { Err(BadKeyLimits) } else { Ok(Self::PerMinute(count)) }
            }
        }
    }
}

impl fmt::Display for KeyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfAccount => f.write_str(OF_ACCOUNT),
            Self::Unlimited => f.write_str(NONE),
            Self::PerMinute(count) => fmt::Display::fmt(count, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_written_and_stored() {
        for (text, stored) in
            [("account", None), ("none", Some(0)), ("1", Some(1)), ("1000000", Some(1_000_000))]
        {
            let limits: KeyLimits = text.parse().unwrap();
            assert_eq!((limits.to_string().as_str(), limits.stored()), (text, stored));
            assert_eq!(KeyLimits::from_stored(stored), limits);
        }
        for wrong in ["", "0", "-1", "1.5", "1000001", "99999999999", "None", "unlimited"] {
            assert_eq!(wrong.parse::<KeyLimits>(), Err(BadKeyLimits), "{wrong}");
        }
    }
}
