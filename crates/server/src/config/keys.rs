//! Finding keys that do not exist.

use toml::{Table, Value};

/// Tables whose keys are names of the operator's own.
const FREE: [&str; 2] = ["images", "pool"];
/// How alike two keys must be (0 to 1) for one to be offered instead of the other.
const ALIKE: f64 = 0.6;

/// What to say of the first key that is not known.
pub fn first_unknown(given: &Table, known: &Table) -> Option<String> {
    look(given, known, "")
}

fn look(given: &Table, known: &Table, prefix: &str) -> Option<String> {
    given.iter().find_map(|(key, value)| match (known.get(key), value) {
        (None, _) => Some(say(key, known, prefix)),
        (Some(_), _) if prefix.is_empty() && FREE.contains(&key.as_str()) => None,
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
