//! Parses the record of a manifest with a bound of its values: a byte of JSON can be a value, and a value takes 32 bytes of memory.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Far more than a record has: its environment and metadata are bounded by those of creates.
const VALUES: u32 = 16_384;

/// For `deserialize_with`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    CountedValue { left: &Cell::new(VALUES) }.deserialize(deserializer)
}

/// Parses one value, and counts it.
#[derive(Clone, Copy)]
struct CountedValue<'a> {
    left: &'a Cell<u32>,
}

impl<'de> DeserializeSeed<'de> for CountedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left
            .set(left.ok_or_else(|| D::Error::custom(format!("the record has more than {VALUES} values")))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CountedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            map.insert(name, access.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}
