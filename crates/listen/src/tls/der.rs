//! Reads the two dates of an X.509 certificate from its DER (RFC 5280 section 4.1). `None` if it is not a certificate.

use time::{Date, Month, OffsetDateTime, Time};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The end of the certificate's validity.
pub fn not_after(certificate: &[u8]) -> Option<OffsetDateTime> {
    validity(certificate).map(|(_, end)| end)
}

/// The start of the certificate's validity.
pub fn not_before(certificate: &[u8]) -> Option<OffsetDateTime> {
    validity(certificate).map(|(start, _)| start)
}

fn validity(certificate: &[u8]) -> Option<(OffsetDateTime, OffsetDateTime)> {
    let (outer, _) = expect(certificate, SEQUENCE)?;
    let (mut rest, _) = expect(outer, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = expect(rest, VERSION)?.1;
    }
    // Serial number, signature algorithm, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        rest = expect(rest, tag)?.1;
    }
    let (dates, _) = expect(rest, SEQUENCE)?;
    let (start, dates) = moment(dates)?;
    let (end, _) = moment(dates)?;
    Some((start, end))
}

/// Splits off one element with the given tag: its content, and the rest.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // At most three bytes of length: certificates are smaller than 16 MiB.
        let count = usize::from(first & 0x7f);
        if !(1..=3).contains(&count) {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(count)?;
        (digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// A time as certificates write it: `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn moment(bytes: &[u8]) -> Option<(OffsetDateTime, &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, text) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let year: i32 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        (GENERALIZED_TIME, 14) => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let part = |at: usize| text.get(at..at + 2)?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(part(0)?).ok()?, part(2)?).ok()?;
    let time = Time::from_hms(part(4)?, part(6)?, part(8)?).ok()?;
    Some((OffsetDateTime::new_utc(date, time), rest))
}
