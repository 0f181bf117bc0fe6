//! Finds unknown keys.

use toml::{Table, Value};

/// Tables whose keys the operator chooses.
const FREE: [&str; 2] = ["images", "pool"];
/// A table of tables with the keys of the one that holds it.
const NAMED: &str = "quotas.accounts";
/// A table of tables whose type checks the keys.
const TYPED: &str = "e2b.templates";
/// The similarity (0 to 1) from which on a known key is suggested.
const ALIKE: f64 = 0.6;

/// The error message for the first unknown key.
pub fn first_unknown(given: &Table, known: &Table) -> Option<String> {
    look(given, known, "")
}

fn look(given: &Table, known: &Table, prefix: &str) -> Option<String> {
    given.iter().find_map(|(key, value)| match (known.get(key), value) {
        (None, _) => Some(say(key, known, prefix)),
        (Some(_), _) if prefix.is_empty() && FREE.contains(&key.as_str()) => None,
        (Some(_), _) if format!("{prefix}{key}") == TYPED => None,
        (Some(_), Value::Table(named)) if format!("{prefix}{key}") == NAMED => {
            let known: Table = known
                .iter()
                .filter(|(own, _)| *own != key)
                .map(|(own, value)| (own.clone(), value.clone()))
                .collect();
            named.iter().find_map(|(name, value)| {
                look(value.as_table()?, &known, &format!("{prefix}{key}.\"{name}\"."))
            })
        }
        (Some(Value::Table(known)), Value::Table(given)) => look(given, known, &format!("{prefix}{key}.")),
        (Some(_), _) => None,
    })
}

fn say(key: &str, known: &Table, prefix: &str) -> String {
    let nearest = known
        .keys()
        .map(|candidate| (strsim::jaro_winkler(key, candidate), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match nearest {
        Some((_, candidate)) => format!("unknown key '{prefix}{key}'; did you mean '{prefix}{candidate}'?"),
        None => {
            let all: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("unknown key '{prefix}{key}'; known here: {}", all.join(", "))
        }
    }
}
