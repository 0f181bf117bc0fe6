//! The hash that decides whether two requests with one key are the same: SHA-256 of the normalized body.
//!
//! JSON is hashed with sorted names and without whitespace, since clients may serialize one request in two ways. Other bodies are hashed
//! byte for byte, and so are those that normalization could change: with duplicate names, with numbers that are not 64-bit integers, and
//! long ones. Cannot fail.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use sha2::{Digest, Sha256};

/// Longer bodies are compared byte for byte; parsed as JSON they may take many times their size.
const PARSED_BYTES_MAX: usize = 1024 * 1024;

pub fn of(body: &[u8]) -> [u8; 32] {
    let parsed = if body.len() <= PARSED_BYTES_MAX { serde_json::from_slice(body).ok() } else { None };
    let mut hash = Sha256::new();
    match parsed {
        Some(value) => add(&mut hash, &value),
        None => {
            // JSON cannot start with this byte.
            hash.update([0]);
            hash.update(body);
        }
    }
    hash.finalize().into()
}

/// Bounded by the depth limit of the parser.
fn add(hash: &mut Sha256, value: &Json) {
    match value {
        Json::Object(members) => {
            hash.update(b"{");
            for (name, value) in members {
                text(hash, name);
                add(hash, value);
            }
            hash.update(b"}");
        }
        Json::List(items) => {
            hash.update(b"[");
            items.iter().for_each(|item| add(hash, item));
            hash.update(b"]");
        }
        Json::Text(string) => text(hash, string),
        Json::Word(word) => {
            hash.update(word);
            hash.update(b",");
        }
    }
}

/// Prefixed with its length, so that its end is unambiguous.
fn text(hash: &mut Sha256, text: &str) {
    hash.update(b"\"");
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

/// JSON without any loss.
enum Json {
    /// `null`, `true`, `false` or an integer.
    Word(String),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Reading)
    }
}

/// A number of any other kind is an error: floating point may show two numbers as one.
struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON that can be compared")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Word("null".to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Word(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Word(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Word(value.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is given twice"));
            }
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_written_in_two_ways_is_one() {
        let same = of(br#"{"image":"node:22","resources":{"cpu":2,"memoryMb":2048}}"#);
        assert_eq!(
            of(b" {\"resources\" : {\"memoryMb\":2048, \"cpu\":2},\n\"image\":\"nod\\u0065:22\"}"),
            same
        );
    }

    #[test]
    fn requests_that_differ_anywhere_are_two() {
        let texts = [
            &br#"{"a":"1"}"#[..],
            br#"{"a":1}"#,
            br#"{"a":2,"a":1}"#,
            br#"{"a":1,"a":1}"#,
            br#"{"a":1.0000000000000000000001}"#,
            br#"{"a":1.0}"#,
            br#"{"a":123456789012345678901}"#,
            br#"{"a":123456789012345678902}"#,
            br#"{"b":{"a":2,"a":1}}"#,
            br#"{"b":{"a":1}}"#,
            br#"{"a":11}"#,
            br#"{"a":[1,1]}"#,
            br#"{"a":[[1],1]}"#,
            br#"{"a":[1,[1]]}"#,
            br#"{"a":["1","1"]}"#,
            br#"{"a":["1\",\"1"]}"#,
            br#"{"a":null}"#,
            br#"{"a":{}}"#,
            br#"{"a":[]}"#,
            br#"{"b":1}"#,
            b"{}",
            b"[]",
            b"",
            b" ",
            b"{",
            b"{ ",
            b"\xff",
        ];
        let hashes: std::collections::BTreeSet<_> = texts.iter().map(|text| of(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }

    #[test]
    fn long_and_deep_bodies_are_compared_as_they_are() {
        let long = |space: &str| format!("{{{space}\"a\":\"{}\"}}", "x".repeat(PARSED_BYTES_MAX));
        assert_ne!(of(long("").as_bytes()), of(long(" ").as_bytes()));
        let deep = |n: usize| "[".repeat(n);
        assert_ne!(of(deep(100_000).as_bytes()), of(deep(100_001).as_bytes()));
    }
}
