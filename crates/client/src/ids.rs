//! Random identifiers for runs and idempotency keys.

use api::ALPHABET;
use rand::RngExt;

const OPAQUE: usize = 20;

/// A unique identifier with a prefix.
pub fn random_id(prefix: &str) -> String {
    let mut random = rand::rng();
    let opaque = (0..OPAQUE).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())]));
    prefix.chars().chain(opaque).collect()
}
