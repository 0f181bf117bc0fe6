//! Finds unknown keys.

use toml::{Table, Value};

/// Tables whose keys the operator chooses.
const FREE: [&str; 4] = ["images", "pool", "isolation.container.pool", "isolation.gvisor.pool"];
/// A table of tables with the keys of the one that holds it.
const NAMED: &str = "quotas.accounts";
/// Tables of tables whose type checks the keys.
const TYPED: [&str; 3] = ["e2b.templates", "isolation.images", "isolation.accounts"];
/// The similarity (0 to 1) from which on a known key is suggested.
const ALIKE: f64 = 0.6;

/// The error message for the first unknown key.
pub fn first_unknown(given: &Table, known: &Table) -> Option<String> {
    look(given, known, "")
}

fn look(given: &Table, known: &Table, prefix: &str) -> Option<String> {
    given.iter().find_map(|(key, value)| match (known.get(key), value) {
        (None, _) => Some(say(key, known, prefix)),
        (Some(_), _) if is_one_of(&FREE, prefix, key) || is_one_of(&TYPED, prefix, key) => None,
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

fn is_one_of(tables: &[&str], prefix: &str, key: &str) -> bool {
    tables.contains(&format!("{prefix}{key}").as_str())
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
