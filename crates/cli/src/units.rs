//! Sizes and times as users write and read them: `4g`, `512m`, `90m`, `1h30m`.

use std::time::Duration;

/// Units of time with their milliseconds, longest first.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
const MB_PER_GB: u64 = 1024;
const INVALID_SIZE: &str = "expected a size with a unit, such as 4g or 4096m; a number alone is in MB";
const INVALID_VCPUS: &str =
    "expected a whole number of vCPUs: 2, 4 or 8, or less if the operator has set resources.minimum.cpu";
const INVALID_TIME: &str =
    "expected a time with units, such as 90s, 90m, 1h30m or 2d; a number alone is in seconds";

/// Parses a size of memory or disk into MB: `4g`, `4gb`, `4GiB`, `512m`, `1.5g`, or MB without a unit.
pub fn megabytes(text: &str) -> Result<u32, String> {
    let invalid = || INVALID_SIZE.to_owned();
    let (number, unit) = split(text).ok_or_else(invalid)?;
    let unit_mb = match unit.to_ascii_lowercase().as_str() {
        "" | "m" | "mb" | "mi" | "mib" => 1,
        "g" | "gb" | "gi" | "gib" => MB_PER_GB,
        "t" | "tb" | "ti" | "tib" => MB_PER_GB * MB_PER_GB,
        _ => return Err(invalid()),
    };
    let mb = product(number, unit_mb).ok_or_else(invalid)?;
    u32::try_from(mb).map_err(|_| invalid())
}

/// Parses a number of vCPUs, which may be written as `2.0`. The service says which ones it allows.
pub fn vcpus(text: &str) -> Result<u32, String> {
    let is_zero = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte == b'0');
    let whole =
        text.split_once('.').filter(|(_, fraction)| is_zero(fraction)).map_or(text, |(whole, _)| whole);
    whole.parse().map_err(|_| INVALID_VCPUS.to_owned())
}

/// Parses a time: `500ms`, `30s`, `90m`, `1h30m`, `1.5h`, `2d`, or seconds without a unit.
pub fn time(text: &str) -> Result<Duration, String> {
    let invalid = || INVALID_TIME.to_owned();
    let (mut rest, mut total_ms, mut shortest_ms) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit_end = rest[end..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |at| end + at);
        let unit_ms = match &rest[end..unit_end] {
            // Only as the whole text: `1h30` could be minutes or seconds.
            "" if rest.len() == text.len() => 1000,
            unit => TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?.1,
        };
        // Each unit is shorter than the one before it.
        if unit_ms >= shortest_ms {
            return Err(invalid());
        }
        let part_ms = product(&rest[..end], unit_ms).ok_or_else(invalid)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(invalid)?;
        (rest, shortest_ms) = (&rest[unit_end..], unit_ms);
    }
    if shortest_ms == u64::MAX { Err(invalid()) } else { Ok(Duration::from_millis(total_ms)) }
}

/// A number and its unit.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// A decimal number times a unit; `None` if it is not one, too large, or not whole.
fn product(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
    (part % scale == 0).then_some(())?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part / scale)
}

/// Formats MB: `4g`, or `1536m` if it is not a whole number of GB.
pub fn size_text(mb: u64) -> String {
    if mb > 0 && mb.is_multiple_of(MB_PER_GB) { format!("{}g", mb / MB_PER_GB) } else { format!("{mb}m") }
}

/// Formats MB for a table: in GB from 1 GB on, rounded to a tenth, such as `48g` or `1.5g`.
pub fn rounded_size_text(mb: u64) -> String {
    if mb < MB_PER_GB {
        return format!("{mb}m");
    }
    let tenths = mb.saturating_mul(10).saturating_add(MB_PER_GB / 2) / MB_PER_GB;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole}g"),
        (whole, tenth) => format!("{whole}.{tenth}g"),
    }
}

/// Formats milliseconds exactly: `1h30m`, 90 seconds as `1m30s`, a day as `24h`.
pub fn time_text(ms: u64) -> String {
    let mut rest = ms;
    let mut text = String::new();
    for (unit, unit_ms) in TIMES {
        let least_ms = if unit == "d" { 2 * unit_ms } else { unit_ms };
        if rest >= least_ms {
            text.push_str(&format!("{}{unit}", rest / unit_ms));
            rest %= unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, mb) in [
            ("4096", 4096),
            ("4g", 4096),
            ("4G", 4096),
            ("4gb", 4096),
            ("4GiB", 4096),
            ("512m", 512),
            ("512MB", 512),
            ("2Gi", 2048),
            ("512Mi", 512),
            ("1.5g", 1536),
            ("0.5t", 524_288),
            ("0", 0),
        ] {
            assert_eq!(megabytes(text), Ok(mb), "{text}");
        }
        for text in ["", "g", "4k", "4 g", "-4g", "4g4", "1.0001g", ".5g", "4.g", "9999999999g", "4gg", "1e3"]
        {
            assert!(megabytes(text).unwrap_err().contains("4g"), "{text}");
        }
    }

    #[test]
    fn vcpus_are_whole_numbers() {
        assert_eq!([vcpus("4"), vcpus("2.0"), vcpus("2.00")], [Ok(4), Ok(2), Ok(2)]);
        for text in ["1.5", "2.", ".0", "2.0.0", "", "-1", "two"] {
            let error = vcpus(text).unwrap_err();
            assert!(error.contains("2, 4 or 8") && error.contains("operator"), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_parsed_with_their_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("90m", 5_400_000),
            ("24h", 86_400_000),
            ("2d", 172_800_000),
            ("1h30m", 5_400_000),
            ("1m30s500ms", 90_500),
            ("1.5h", 5_400_000),
            ("7", 7000),
            ("0", 0),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "s",
            "1w",
            "-1s",
            "1h30",
            "30m1h",
            "1s1s",
            "1.0001ms",
            "1 h",
            "99999999999999999999",
            "18446744073709551615h",
            "18446744073709551615ms1h",
        ] {
            assert!(time(text).unwrap_err().contains("90m"), "{text}");
        }
    }

    #[test]
    fn values_are_formatted_with_the_largest_units() {
        assert_eq!([4096, 1536, 0, 51_200].map(size_text), ["4g", "1536m", "0m", "50g"]);
        let rounded = [122_885, 49_152, 1536, 1023, 0, 1024 + 51, 1024 + 52].map(rounded_size_text);
        assert_eq!(rounded, ["120g", "48g", "1.5g", "1023m", "0m", "1g", "1.1g"]);
        let times = [0, 1, 90_000, 5_400_000, 86_400_000, 300_000, 176_400_000].map(time_text);
        assert_eq!(times, ["0s", "1ms", "1m30s", "1h30m", "24h", "5m", "2d1h"]);
    }
}
