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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        assert!(length < 0x80);
        [&[tag, length][..], content].concat()
    }

    fn at(tag: u8, text: &str) -> Option<i64> {
        moment(&of(tag, text.as_bytes())).map(|(moment, _)| moment.unix_timestamp())
    }

    #[test]
    fn both_formats_of_times_are_read() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "691231235959Z", -1),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "500101000000Z", -631_152_000),
            (UTC_TIME, "240229120000Z", 1_709_208_000),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "19700101000001Z", 1),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(at(tag, text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn other_times_are_not_read() {
        for (tag, text) in [
            (UTC_TIME, "700101000000"),
            (UTC_TIME, "7001010000Z"),
            (UTC_TIME, "700101000000+0000"),
            (UTC_TIME, "19700101000000Z"),
            (GENERALIZED_TIME, "700101000000Z"),
            (GENERALIZED_TIME, "20500101000000.5Z"),
            (INTEGER, "700101000000Z"),
            (UTC_TIME, "7001010000+0Z"),
            (UTC_TIME, "70010100000 Z"),
            (UTC_TIME, "700001000000Z"),
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "230229000000Z"),
            (UTC_TIME, "700101240000Z"),
            (UTC_TIME, "700101006000Z"),
            (UTC_TIME, "700101000060Z"),
            (UTC_TIME, ""),
        ] {
            assert_eq!(at(tag, text), None, "{text}");
        }
    }

    #[test]
    fn an_element_is_split_at_its_length() {
        let long = [&[SEQUENCE, 0x81, 0x80][..], &[7; 0x80], b"rest"].concat();
        let longer = [&[SEQUENCE, 0x82, 0x01, 0x02][..], &[7; 0x102], b"rest"].concat();
        let longest = [&[SEQUENCE, 0x83, 0x01, 0x00, 0x01][..], &[7; 0x1_0001], b"rest"].concat();
        for (bytes, length) in [(long, 0x80), (longer, 0x102), (longest, 0x1_0001)] {
            let (tag, content, rest) = element(&bytes).unwrap();
            assert_eq!((tag, content.len(), rest), (SEQUENCE, length, &b"rest"[..]));
        }
        assert_eq!(element(&[INTEGER, 0, 9]), Some((INTEGER, &[][..], &[9][..])));
        assert_eq!(element(&[INTEGER, 0x7f]), None, "shorter than its length");
        for bytes in [
            &[][..],
            &[SEQUENCE],
            &[SEQUENCE, 2, 0],
            // The indefinite length, which DER forbids.
            &[SEQUENCE, 0x80, 0, 0],
            // Four bytes of length.
            &[SEQUENCE, 0x84, 0, 0, 0, 1, 0],
            &[SEQUENCE, 0x82, 0],
            &[SEQUENCE, 0xff],
        ] {
            assert_eq!(element(bytes), None, "{bytes:02x?}");
        }
    }

    #[test]
    fn the_version_is_optional_and_the_order_is_not() {
        let dates = of(SEQUENCE, &[of(UTC_TIME, b"700101000001Z"), of(UTC_TIME, b"700101000002Z")].concat());
        let [number, algorithm, issuer] = [of(INTEGER, &[1]), of(SEQUENCE, &[2]), of(SEQUENCE, &[3])];
        let version = of(VERSION, &of(INTEGER, &[2]));
        let certificate = |parts: &[&[u8]]| of(SEQUENCE, &of(SEQUENCE, &parts.concat()));
        for parts in [
            &[&*version, &number, &algorithm, &issuer, &dates][..],
            &[&*number, &algorithm, &issuer, &dates, b"the rest is not read"],
        ] {
            let certificate = certificate(parts);
            let seconds = |moment: Option<OffsetDateTime>| moment.map(OffsetDateTime::unix_timestamp);
            assert_eq!(seconds(not_before(&certificate)), Some(1));
            assert_eq!(seconds(not_after(&certificate)), Some(2));
        }
        for parts in [
            &[&*algorithm, &number, &issuer, &dates][..],
            &[&*number, &algorithm, &dates],
            &[&*number, &version, &algorithm, &issuer, &dates],
            &[&*number, &algorithm, &issuer, &of(SEQUENCE, &of(UTC_TIME, b"700101000001Z"))],
            &[],
        ] {
            assert_eq!(not_after(&certificate(parts)), None);
        }
    }
}
