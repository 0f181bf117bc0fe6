//! Base32 with the alphabet of sandbox ids: five bits a character, highest first, the last character padded with zeros. Keys and
//! request ids are encoded and never decoded; port tokens are decoded.

use api::ALPHABET;

/// The length of the text of `bytes` bytes.
pub(crate) const fn chars_for(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5)
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(chars_for(bytes.len()));
    let (mut held, mut held_bits) = (0u32, 0);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        held_bits += 8;
        while held_bits >= 5 {
            held_bits -= 5;
            text.push(character(held >> held_bits));
        }
        held &= (1 << held_bits) - 1;
    }
    if held_bits > 0 {
        text.push(character(held << (5 - held_bits)));
    }
    text
}

/// Decodes a text that [`encode`] made from `N` bytes.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != chars_for(N) {
        return None;
    }
    let (mut bytes, mut filled) = ([0; N], 0);
    let (mut held, mut held_bits) = (0u32, 0);
    for byte in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == byte)?;
        held = (held << 5) | u32::try_from(value).ok()?;
        held_bits += 5;
        if held_bits >= 8 {
            held_bits -= 8;
            *bytes.get_mut(filled)? = u8::try_from(held >> held_bits).ok()?;
            held &= (1 << held_bits) - 1;
            filled += 1;
        }
    }
    // The padding must be zero, so that these bytes have only one text.
    (held == 0).then_some(bytes)
}

pub(crate) fn is_char(byte: u8) -> bool {
    ALPHABET.contains(&byte)
}

fn character(five_bits: u32) -> char {
    char::from(ALPHABET[(five_bits & 31) as usize])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn five_bits_a_character_highest_first() {
        assert_eq!(encode(&[]), "");
        assert_eq!(encode(&[0]), "00");
        assert_eq!(encode(&[0xff]), "zw");
        assert_eq!(encode(&[0b0000_1000, 0b1000_0110]), "1230");
    }

    #[test]
    fn non_canonical_text_is_not_decoded() {
        assert_eq!(decode::<1>("zw"), Some([0xff]));
        for text in ["", "z", "zz", "zwz", "ZW", "z!", "zé"] {
            assert_eq!(decode::<1>(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn different_bytes_make_different_text(a: [u8; 5], b: [u8; 5], tail: [u8; 3]) {
            prop_assert_eq!(a == b, encode(&a) == encode(&b));
            let whole: Vec<u8> = a.iter().chain(&tail).copied().collect();
            let text = encode(&whole);
            prop_assert_eq!(text.len(), chars_for(whole.len()));
            // Five bytes are eight characters, so what follows does not mix with them.
            prop_assert_eq!(&text[..8], encode(&a));
            prop_assert!(text.bytes().all(is_char));
            prop_assert_eq!(decode::<8>(&text), whole.try_into().ok());
        }
    }
}
