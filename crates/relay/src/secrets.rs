//! Finds API keys and port tokens in what a client sends, in the forms that clients put them in: as they are, in any case,
//! percent-encoded (up to three times), in base64 at any offset (`Authorization: Basic`) and in hexadecimal. Pure.

/// The prefixes of keys and tokens, each with its base64 forms at the three offsets within a group.
const MARKS: [Mark; 3] = [
    Mark { text: b"sbk_", hex: b"73626b5f", base64: [b"c2JrX", b"Nia1", b"zYmtf"] },
    Mark { text: b"spt_", hex: b"7370745f", base64: [b"c3B0X", b"NwdF", b"zcHRf"] },
    Mark { text: b"e2b_", hex: b"6532625f", base64: [b"ZTJiX", b"UyYl", b"lMmJf"] },
];
/// The number of letters and digits after the mark in a valid key or token; a shorter word belongs to the program.
const LEAST_FOLLOWING: usize = 20;
const MOST_DECODINGS: usize = 3;

struct Mark {
    text: &'static [u8],
    hex: &'static [u8],
    base64: [&'static [u8]; 3],
}

/// Whether the text contains a key or a token.
pub fn holds_secret(bytes: &[u8]) -> bool {
    if has_mark(bytes) {
        return true;
    }
    let mut decoded = None;
    for _ in 0..MOST_DECODINGS {
        let Some(next) = percent_decoded(decoded.as_deref().unwrap_or(bytes)) else { return false };
        if has_mark(&next) {
            return true;
        }
        decoded = Some(next);
    }
    false
}

fn has_mark(bytes: &[u8]) -> bool {
    MARKS.iter().any(|mark| {
        let any_case = |part: &[u8], mark: &[u8]| part.eq_ignore_ascii_case(mark);
        let exact = |part: &[u8], mark: &[u8]| part == mark;
        followed(bytes, mark.text, any_case)
            || followed(bytes, mark.hex, any_case)
            || mark.base64.iter().any(|mark| followed(bytes, mark, exact))
    })
}

/// Whether the text contains the mark, followed by as many letters and digits as a key has.
fn followed(bytes: &[u8], mark: &[u8], is_mark: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    let starts = bytes.windows(mark.len()).enumerate().filter(|(_, part)| is_mark(part, mark));
    starts.map(|(at, _)| &bytes[at + mark.len()..]).any(|rest| {
        rest.iter().take(LEAST_FOLLOWING).filter(|byte| byte.is_ascii_alphanumeric()).count()
            == LEAST_FOLLOWING
    })
}

/// Percent-decoded; `None` if nothing is encoded.
pub fn percent_decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(bytes.len());
    let (mut rest, mut found) = (bytes, false);
    while let Some((&byte, after)) = rest.split_first() {
        if let (b'%', [high, low, after @ ..]) = (byte, after)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            decoded.push(high << 4 | low);
            (rest, found) = (after, true);
        } else {
            decoded.push(byte);
            rest = after;
        }
    }
    found.then_some(decoded)
}

#[cfg(test)]
pub mod tests {
    use std::fmt::Write;

    use super::*;

    pub const KEY: &str = "sbk_0123456789abcdefghjkmnpqrstvwxyz0123456789abcdefghjkmnpqrst";
    const TOKEN: &str = "spt_0123456789abcdefghjkmnpqrstvwxyz0123456789abcdefghjkmnpqrst";

    const E2B_KEY: &str = "e2b_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    pub fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let number = (0..3).fold(0, |number, at| number << 8 | u32::from(*group.get(at).unwrap_or(&0)));
            for at in 0..4 {
                let letter = LETTERS[(number >> (18 - 6 * at) & 63) as usize];
                text.push(if at <= group.len() { char::from(letter) } else { '=' });
            }
        }
        text
    }

    pub fn percent(text: &str) -> String {
        text.bytes().fold(String::new(), |mut text, byte| {
            write!(text, "%{byte:02X}").unwrap();
            text
        })
    }

    #[test]
    fn secrets_are_found_in_every_form() {
        assert_eq!(base64(b"user:x"), "dXNlcjp4");
        for secret in [KEY, TOKEN, E2B_KEY] {
            let hex = secret.bytes().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
            let mut forms = vec![
                secret.to_owned(),
                secret.to_uppercase(),
                format!("a={secret};b"),
                format!("bearer.{secret}"),
                percent(secret),
                percent(&percent(secret)),
                percent(&percent(&percent(secret))),
                secret.replace('_', "%5f"),
                hex.to_uppercase(),
                hex,
            ];
            for user in ["", ":", "u:", "us:", "user:", "user@example.com:"] {
                forms.push(format!("Basic {}", base64(format!("{user}{secret}").as_bytes())));
                forms.push(format!("Basic {}", base64(format!("{user}{secret}:password").as_bytes())));
                forms.push(percent(&base64(format!("{user}{secret}").as_bytes())));
            }
            for form in forms {
                assert!(holds_secret(form.as_bytes()), "{form}");
            }
        }
    }

    #[test]
    fn other_texts_are_not_secrets() {
        for own in [
            "",
            "%",
            "%zz%5",
            "sbk_",
            "sbk_short",
            "my_sbk_words are not one",
            "Basic dXNlcjpwYXNzd29yZA==",
            "c2JrX",
            &base64(&[7; 300]),
            &percent("a long text without any secret in it"),
        ] {
            assert!(!holds_secret(own.as_bytes()), "{own}");
        }
    }
}
