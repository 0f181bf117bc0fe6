//! Timestamps in bodies: RFC 3339 in UTC, always with milliseconds and `Z`.
//!
//! Formatting cannot fail: a time after the year 9999 is formatted as the last one before. Parsing accepts any UTC offset and any
//! number of digits after the second.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

const FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
const NANOSECONDS_A_MS: i128 = 1_000_000;
/// 9999-12-31T23:59:59.999Z
const LAST_MS: u64 = 253_402_300_799_999;

/// Milliseconds since 1970-01-01T00:00:00Z; in JSON a text such as `2026-01-02T03:04:05.678Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(description = "A time in UTC with milliseconds, in ISO 8601 format."))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
#[cfg_attr(feature = "openapi", schema(example = "2026-01-02T03:04:05.678Z"))]
pub struct Timestamp(pub u64);

/// The text is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a timestamp is a time in RFC 3339 format from 1970 on, such as '2026-01-02T03:04:05.678Z'")]
pub struct BadTimestamp;

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = i128::from(self.0.min(LAST_MS)) * NANOSECONDS_A_MS;
        let at = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).map_err(|_| fmt::Error)?;
        f.write_str(&at.format(FORMAT).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Timestamp {
    /// The form in HTTP headers: `Fri, 02 Jan 2026 03:04:05 GMT`.
    pub fn http_date(self) -> String {
        let nanoseconds = i128::from(self.0.min(LAST_MS)) * NANOSECONDS_A_MS;
        let at = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok();
        at.and_then(|at| at.format(HTTP_DATE).ok()).unwrap_or_default()
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| BadTimestamp)?;
        let ms = at.unix_timestamp_nanos().div_euclid(NANOSECONDS_A_MS);
        u64::try_from(ms).map(Self).map_err(|_| BadTimestamp)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in RFC 3339 format from 1970 on, such as '2026-01-02T03:04:05.678Z'")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(|_| E::invalid_type(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_milliseconds_and_z() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_767_323_045_678, "2026-01-02T03:04:05.678Z"),
            (1_767_323_045_070, "2026-01-02T03:04:05.070Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (LAST_MS, "9999-12-31T23:59:59.999Z"),
            (LAST_MS + 1, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp(ms.min(LAST_MS))));
        }
    }

    #[test]
    fn reads_what_other_programs_write() {
        for text in ["2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05.000999Z"] {
            assert_eq!(text.parse(), Ok(Timestamp(1_767_323_045_000)), "{text}");
        }
        for text in
            ["", "2026-01-02", "2026-01-02T03:04:05", "1969-12-31T23:59:59.999Z", "2026-02-30T00:00:00Z"]
        {
            assert_eq!(text.parse::<Timestamp>(), Err(BadTimestamp), "{text}");
        }
    }

    #[test]
    fn is_a_text_in_json() {
        let json = serde_json::to_string(&Timestamp(1)).unwrap();
        assert_eq!(json, r#""1970-01-01T00:00:00.001Z""#);
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), Timestamp(1));
        let error = serde_json::from_str::<Timestamp>(r#""soon""#).unwrap_err().to_string();
        assert!(error.contains("2026-01-02T03:04:05.678Z"), "{error}");
        assert!(serde_json::from_str::<Timestamp>("1").is_err());
    }

    proptest! {
        #[test]
        fn displayed_values_parse(ms in 0..=LAST_MS) {
            let text = Timestamp(ms).to_string();
            prop_assert_eq!(text.len(), 24);
            prop_assert_eq!(text.parse(), Ok(Timestamp(ms)));
        }
    }
}
