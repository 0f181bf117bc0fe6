//! Text: names, quoting and encodings in the modules below, and here the bytes of a command as text: U+FFFD for each bad sequence
//! (decision 12), and cuts that split no character.

pub mod base32;
pub mod field_names;
pub mod quoted;
pub mod request_id;

/// The text, with U+FFFD in place of each sequence that is not UTF-8. Good text is not copied.
pub fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The largest offset of at most `limit` at which a cut splits no character. It depends only on the bytes before `limit` and is at
/// most three bytes before it.
pub fn cut_before(bytes: &[u8], limit: usize) -> usize {
    if bytes.len() <= limit {
        return bytes.len();
    }
    incomplete_from(&bytes[..limit])
}

/// The start of an incomplete character at the end of `bytes`, or their length.
pub(crate) fn incomplete_from(bytes: &[u8]) -> usize {
    let near_end = bytes.len().saturating_sub(3);
    // The first byte of a character is never inside another one, so a cut before it splits none.
    let Some(begin) = bytes[near_end..].iter().rposition(|byte| *byte >= 0xC0) else { return bytes.len() };
    let begin = near_end + begin;
    match std::str::from_utf8(&bytes[begin..]) {
        Err(error) if error.error_len().is_none() => begin,
        _ => bytes.len(),
    }
}

/// The number of bytes at the front that continue a character from before: at most three.
pub(crate) fn continued(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| (0x80..0xC0).contains(*byte)).count()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

    #[test]
    fn cuts_go_before_the_character_they_would_split() {
        let text = "aä€😀z".as_bytes();
        let cuts: Vec<usize> = (0..=text.len()).map(|limit| cut_before(text, limit)).collect();
        assert_eq!(cuts, [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11]);
    }

    #[test]
    fn bad_bytes_may_be_cut_anywhere() {
        assert_eq!(cut_before(&[0xFF; 10], 5), 5);
        assert_eq!(cut_before(&[0x80; 10], 5), 5);
        assert_eq!(cut_before(&[b'a', 0xE0, 0x80, b'b'], 3), 3);
    }

    #[test]
    fn good_text_and_bad_text() {
        assert_eq!(lossy("ä€".into()), "ä€");
        assert_eq!(lossy(b"a\xFF\xE2\x82b".to_vec()), "a\u{FFFD}\u{FFFD}b");
    }

    /// Bytes that are often text, often nearly text.
    pub(crate) fn arbitrary_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            prop::sample::select(vec![b"\n".to_vec(), b"\r\n".to_vec(), b"\r".to_vec(), b"a".to_vec()]),
            any::<u8>().prop_map(|byte| vec![byte]),
            any::<char>().prop_map(|c| {
                let mut bytes = c.to_string().into_bytes();
                bytes.pop();
                bytes
            }),
        ];
        prop::collection::vec(piece, 0..most).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn parts_join_to_the_whole(bytes in arbitrary_bytes(60), limit in 0usize..80) {
            let cut = cut_before(&bytes, limit);
            prop_assert!(cut <= limit && (cut + 3 >= limit || cut == bytes.len()));
            let joined = lossy(bytes[..cut].to_vec()) + &lossy(bytes[cut..].to_vec());
            prop_assert_eq!(joined, lossy(bytes));
        }
    }
}
