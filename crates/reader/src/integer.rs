//! JSON numbers as integers. `2.0` and `2e0` are the integer 2, as in JSON Schema.

use rules::Integer;

/// The integer value of a JSON number, or `None` if it has a fraction. A value outside the range of [`Integer`] becomes its nearest
/// bound, which is outside the range of every field.
pub fn integer(number: &str) -> Option<Integer> {
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let limit = if negative { Integer::MIN } else { Integer::MAX };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let ahead = exponent.starts_with('-');
    let Ok(exponent) = exponent.parse::<i64>() else {
        // Such an exponent makes the value 0 or too large for any field.
        return if ahead { None } else { Some(limit) };
    };
    let scale = exponent.saturating_sub(i64::try_from(fraction.len()).unwrap_or(i64::MAX));
    let scaled = if scale < 0 {
        let dropped = usize::try_from(scale.unsigned_abs()).unwrap_or(usize::MAX);
        let at = digits.len().checked_sub(dropped)?;
        let (scaled, dropped) = digits.split_at(at);
        if dropped.bytes().any(|digit| digit != b'0') {
            return None;
        }
        scaled.to_owned()
    } else {
        match usize::try_from(scale) {
            Ok(zeros) if zeros <= 40 => format!("{digits}{}", "0".repeat(zeros)),
            _ => return Some(limit),
        }
    };
    let sign = if negative { "-" } else { "" };
    Some(format!("{sign}{scaled}").parse().unwrap_or(limit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn numbers_with_nothing_after_the_point_are_integers() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("-0.00", 0),
            ("0e999999999999999999999", 0),
            ("2", 2),
            ("2.0", 2),
            ("2.000", 2),
            ("20e-1", 2),
            ("0.2e1", 2),
            ("0.0020E+3", 2),
            ("-1e3", -1000),
            ("1.5e1", 15),
            ("18446744073709551616", 1 << 64),
            ("170141183460469231731687303715884105727", Integer::MAX),
            ("170141183460469231731687303715884105728", Integer::MAX),
            ("-170141183460469231731687303715884105729", Integer::MIN),
            ("1e38", 10_i128.pow(38)),
            ("1e39", Integer::MAX),
            ("-1e400", Integer::MIN),
            ("1e99999999999999999999999", Integer::MAX),
            ("1e9223372036854775807", Integer::MAX),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in
            ["2.5", "1e-1", "-0.1", "15e-2", "1e-99999999999999999999999", "1.0000000000000000000000001"]
        {
            assert_eq!(integer(text), None, "{text}");
        }
        // Exact, without a float.
        assert_eq!(integer(&format!("2.{}", "0".repeat(400))), Some(2));
        assert_eq!(integer(&format!("2.{}1", "0".repeat(400))), None);
        assert_eq!(integer(&format!("{}.0", "9".repeat(400))), Some(Integer::MAX));
        assert_eq!(integer(&format!("2{}e-400", "0".repeat(400))), Some(2));
    }

    proptest! {
        #[test]
        fn every_way_to_write_an_integer_is_read(value in i64::MIN..i64::MAX, zeros in 0usize..30) {
            let zeros_text = "0".repeat(zeros);
            for text in [
                format!("{value}"),
                format!("{value}.{zeros_text}0"),
                format!("{value}{zeros_text}e-{zeros}"),
                format!("{value}{zeros_text}.0E-{zeros}"),
            ] {
                prop_assert_eq!(integer(&text), Some(Integer::from(value)), "{}", text);
            }
            let fraction = format!("{value}.{zeros_text}1");
            prop_assert_eq!(integer(&fraction), None, "{}", fraction);
        }
    }
}
