//! JSON as protobuf defines it: absent and `null` are the default, bytes are base64, 64-bit numbers are text, enums are names.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, Visitor};

use super::connect::RpcError;

/// Padding is optional in protobuf's JSON.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Most values and names in a message, of which each takes up to some 200 bytes of memory. A command with the most arguments and
/// variables has 12,288.
const MAX_VALUES: usize = 16_384;

/// Parses a message. Unknown fields are ignored.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, RpcError> {
    reader::check_shape(json, MAX_VALUES).map_err(|refusal| RpcError::invalid(refusal.to_string()))?;
    serde_json::from_slice(json)
        .map_err(|error| RpcError::invalid(format!("the message is not valid: {error}")))
}

/// For fields where `null` is the default.
pub fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// Bytes in base64 of either alphabet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Base64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes in base64")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Base64, E> {
                let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text));
                decoded.map(Base64).map_err(|error| E::custom(format!("not base64: {error}")))
            }
        }
        from.deserialize_str(Text)
    }
}

/// A 32-bit number, which may also be written as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Number(pub u32);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f64),
            Text(String),
        }
        let number = match Form::deserialize(from)? {
            Form::Number(number) => number,
            Form::Text(text) => text.parse().map_err(D::Error::custom)?,
        };
        if number.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&number) {
            return Err(D::Error::custom(format!("{number} is not a number from 0 to {}", u32::MAX)));
        }
        // The checks above make this exact.
        Ok(Self(number as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_have_several_forms() {
        for (json, expected) in [("7", 7), ("7.0", 7), ("\"7\"", 7), ("4294967295", u32::MAX)] {
            assert_eq!(parse::<Number>(json.as_bytes()).unwrap(), Number(expected), "{json}");
        }
        for json in ["-1", "4294967296", "1.5", "\"x\"", "1e300", "null", "{}"] {
            assert!(parse::<Number>(json.as_bytes()).is_err(), "{json}");
        }
        for json in ["\"+/8=\"", "\"+/8\"", "\"-_8\"", "\"-_8=\""] {
            assert_eq!(parse::<Base64>(json.as_bytes()).unwrap(), Base64(vec![0xfb, 0xff]), "{json}");
        }
        assert!(parse::<Base64>(b"\"*\"").is_err());
        assert!(parse::<Base64>(b"1").is_err());
    }
}
