//! Ranges and conditions of a download (RFC 9110).

use axum::http::{HeaderMap, HeaderName, header};
use engine::FileRange;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// A time as in `Last-Modified`.
pub fn http_date(seconds: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(HTTP_DATE).ok()
}

/// The single range that a request asks for. Several ranges and malformed ones are ignored, as RFC 9110 allows.
pub fn requested(headers: &HeaderMap) -> Option<FileRange> {
    let range = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = range.split_once('-')?;
    let number =
        |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    match (first, last) {
        ("", last) => Some(FileRange { offset: number(last)?, from_end: true, length: None }),
        (first, "") => Some(FileRange { offset: number(first)?, from_end: false, length: None }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            let length = last.checked_sub(first)?.checked_add(1)?;
            Some(FileRange { offset: first, from_end: false, length: Some(length) })
        }
    }
}

/// What the conditions of a request say about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Send,
    NotModified,
    Failed,
}

/// Compares the conditions with the time of the last modification.
pub fn condition(headers: &HeaderMap, modified_s: i64) -> Condition {
    if date(headers, header::IF_UNMODIFIED_SINCE).is_some_and(|since| modified_s > since) {
        return Condition::Failed;
    }
    match date(headers, header::IF_MODIFIED_SINCE) {
        Some(since) if modified_s <= since && !headers.contains_key(header::IF_NONE_MATCH) => {
            Condition::NotModified
        }
        _ => Condition::Send,
    }
}

/// Whether a range applies to the file in its present form.
pub fn range_applies(headers: &HeaderMap, modified_s: i64) -> bool {
    !headers.contains_key(header::IF_RANGE) || date(headers, header::IF_RANGE) == Some(modified_s)
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(PrimitiveDateTime::parse(text, HTTP_DATE).ok()?.assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn ranges_are_read() {
        let of = |value: &str| requested(&headers(header::RANGE, value));
        let range = |offset, from_end, length| Some(FileRange { offset, from_end, length });
        assert_eq!(of("bytes=0-9"), range(0, false, Some(10)));
        assert_eq!(of("bytes=5-"), range(5, false, None));
        assert_eq!(of("bytes=-5"), range(5, true, None));
        for ignored in ["bytes=9-0", "bytes=-", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b", "bytes=+1-2", ""] {
            assert_eq!(of(ignored), None, "{ignored}");
        }
        assert_eq!(of("bytes=0-18446744073709551615"), None);
    }

    #[test]
    fn conditions_compare_seconds() {
        let date = http_date(1_700_000_000).unwrap();
        assert_eq!(date, "Tue, 14 Nov 2023 22:13:20 GMT");
        let since = headers(header::IF_MODIFIED_SINCE, &date);
        assert_eq!(condition(&since, 1_700_000_000), Condition::NotModified);
        assert_eq!(condition(&since, 1_700_000_001), Condition::Send);
        let until = headers(header::IF_UNMODIFIED_SINCE, &date);
        assert_eq!(condition(&until, 1_700_000_000), Condition::Send);
        assert_eq!(condition(&until, 1_700_000_001), Condition::Failed);
        let range = headers(header::IF_RANGE, &date);
        assert!(range_applies(&range, 1_700_000_000) && !range_applies(&range, 1_700_000_001));
        assert!(!range_applies(&headers(header::IF_RANGE, "\"tag\""), 0));
    }
}
