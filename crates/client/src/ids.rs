//! Identifiers that the library makes: of runs, of events, and of requests that may be sent again.

use api::ALPHABET;
use rand::RngExt;

const OPAQUE: usize = 20;

/// An identifier that nobody else makes.
pub fn made(prefix: &str) -> String {
    let mut random = rand::rng();
    let opaque = (0..OPAQUE).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())]));
    prefix.chars().chain(opaque).collect()
}
