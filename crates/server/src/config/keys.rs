//! Compares the file with its [`shape`](super::shape::shape): unknown keys, keys in the wrong table, and values of the wrong type.
//!
//! Runs before the file becomes a [`Config`](super::Config), to report all errors at once, each with its line and in the terms of the
//! file. What passes here can still have a value that its type refuses, such as a word outside a set: [`of_value`] reports that.

use std::ops::Range;

use rules::{alternatives, mistyped, quoted};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::problems::Problem;
use super::shape::ANY;
use super::tables::TABLES;

/// The keys whose default is a text and that can be a list, too.
const TEXT_OR_LIST: [&str; 1] = ["egress.resolver"];
/// Values of keys with this in their name are not shown.
const SECRET: &str = "secret";
/// What the reference says of a text without rules.
const PLAIN_TEXT: &str = "text";
/// The similarity (0 to 1) from which on a known key is suggested.
const ALIKE: f64 = 0.75;
/// The most tables that are named for one key.
const TABLES_MAX: usize = 4;

/// All unknown keys, and all values of a wrong type.
pub fn compare(text: &str, given: &DeTable<'_>, shape: &Table) -> Vec<Problem> {
    let mut comparison = Comparison { text, shape, problems: Vec::new() };
    comparison.table(given, shape, "");
    comparison.problems.sort_by_key(|problem| problem.line);
    comparison.problems
}

/// A text that is not TOML.
pub fn of_syntax(text: &str, error: &toml::de::Error) -> Problem {
    let span = error.span();
    let key = span.as_ref().and_then(|span| key_at(text, span));
    let key = key.map(|key| format!(": {}", quoted(key))).unwrap_or_default();
    let message = format!("this is not valid TOML: {}{key}", error.message());
    Problem { line: span.map(|span| line_of(text, &span)), message }
}

/// The key at a place of the text, if that is one. Values can be secrets and are not shown.
fn key_at<'a>(text: &'a str, span: &Range<usize>) -> Option<&'a str> {
    let before = text.get(..span.start)?.rsplit('\n').next()?;
    let key = text.get(span.clone()).filter(|key| !key.is_empty() && !key.contains('\n'))?;
    let after = text.get(span.end..)?.trim_start_matches([' ', '\t']);
    (!before.contains('=') && after.starts_with(['=', '.', ']'])).then_some(key)
}

/// The error of a type about the value at a place of the text.
pub fn of_value(text: &str, given: &DeTable<'_>, error: &toml::de::Error) -> Problem {
    let span = error.span();
    let found = span.as_ref().and_then(|span| value_at(given, span.start, ""));
    let message = match found {
        None => error.message().to_owned(),
        Some((table, key, value)) => {
            let path = format!("{table}{key}");
            match (kind_of(&table, &key), value) {
                (Some(kind), DeValue::Integer(_)) => {
                    let allowed = type_of(&Value::Integer(0), Some(&kind));
                    format!("{path} is {}; it must be {allowed}", shown(&path, value))
                }
                (Some(kind), _) => format!("{path} is {}; it must be {kind}", shown(&path, value)),
                (None, _) => format!("{path}: {}", error.message()),
            }
        }
    };
    Problem { line: span.map(|span| line_of(text, &span)), message }
}

/// Removes the value at a byte of the text, unless it is a table. Returns the key of the top level that has it.
pub fn remove_value(given: &mut DeTable<'_>, at: usize) -> Option<String> {
    let found = given.iter().find_map(|(key, value)| {
        let is_here = !value.get_ref().is_table() && value.span().contains(&at);
        is_here.then(|| key.get_ref().to_string())
    });
    if let Some(key) = found {
        given.remove(key.as_str())?;
        return Some(key);
    }
    given.iter_mut().find_map(|(key, value)| match value.get_mut() {
        DeValue::Table(inner) => remove_value(inner, at).map(|_| key.get_ref().to_string()),
        _ => None,
    })
}

/// The line of the key that the message of a check begins with: `KEY is …`, `KEY: …` or `in KEY: …`. For a missing key that of its table.
pub fn line_of_message(text: &str, message: &str) -> Option<usize> {
    let given = DeTable::parse(text).ok()?;
    let named = message.strip_prefix("in ").unwrap_or(message);
    named_at(given.get_ref(), named).map(|span| line_of(text, &span))
}

fn named_at(given: &DeTable<'_>, named: &str) -> Option<Range<usize>> {
    given.iter().find_map(|(key, value)| {
        let name: &str = key.get_ref();
        let quoted = format!("\"{name}\"");
        let rest = named.strip_prefix(quoted.as_str()).or_else(|| named.strip_prefix(name))?;
        match (rest.strip_prefix('.'), value.get_ref()) {
            (Some(inner), DeValue::Table(table)) => named_at(table, inner).or_else(|| Some(key.span())),
            (None, _) if rest.starts_with([' ', ':']) => Some(key.span()),
            _ => None,
        }
    })
}

struct Comparison<'a> {
    text: &'a str,
    /// Of the whole file.
    shape: &'a Table,
    problems: Vec<Problem>,
}

impl Comparison<'_> {
    /// `prefix` is the path of the table, with a dot at its end.
    fn table(&mut self, given: &DeTable<'_>, shape: &Table, prefix: &str) {
        for (key, value) in given {
            let name: &str = key.get_ref();
            match (shape.get(name), shape.get(ANY)) {
                (Some(expected), _) => self.value(value, expected, prefix, name),
                // A mistyped key of a table that also has names of the operator's choice.
                (None, Some(expected))
                    if fits(value.get_ref(), expected) || similar(name, shape).is_none() =>
                {
                    self.value(value, expected, prefix, &format!("\"{name}\""));
                }
                (None, _) => {
                    let message = unknown(name, shape, prefix, self.shape);
                    self.report(key.span(), message);
                }
            }
        }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, expected: &Value, prefix: &str, name: &str) {
        let path = format!("{prefix}{name}");
        match (value.get_ref(), expected) {
            // Names of the operator's choice, with values that only their type knows.
            (DeValue::Table(_), Value::Table(shape)) if shape.is_empty() => {}
            (DeValue::Table(given), Value::Table(shape)) => self.table(given, shape, &format!("{path}.")),
            (DeValue::Array(all), Value::Array(_)) => self.texts(all, &path),
            (DeValue::Array(all), Value::String(_)) if TEXT_OR_LIST.contains(&path.as_str()) => {
                self.texts(all, &path);
            }
            (given, expected) if fits(given, expected) => {}
            (given, expected) => {
                let allowed = type_of(expected, kind_of(prefix, name).as_deref());
                let message = format!("{path} is {}; it must be {allowed}", shown(&path, given));
                self.report(value.span(), message);
            }
        }
    }

    /// Every list of the configuration is one of texts.
    fn texts(&mut self, all: &[Spanned<DeValue<'_>>], path: &str) {
        for (index, entry) in all.iter().enumerate() {
            if !entry.get_ref().is_str() {
                let got = shown(path, entry.get_ref());
                self.report(entry.span(), format!("{path}[{index}] is {got}; it must be text in quotes"));
            }
        }
    }

    fn report(&mut self, span: Range<usize>, message: String) {
        self.problems.push(Problem { line: Some(line_of(self.text, &span)), message });
    }
}

/// Whether the value has the type of the expected one. Numbers of the configuration are not negative.
fn fits(given: &DeValue<'_>, expected: &Value) -> bool {
    match (given, expected) {
        (DeValue::Integer(number), Value::Integer(_)) => !number.as_str().starts_with('-'),
        (DeValue::Integer(_) | DeValue::Float(_), Value::Float(_))
        | (DeValue::String(_), Value::String(_))
        | (DeValue::Boolean(_), Value::Boolean(_))
        | (DeValue::Array(_), Value::Array(_))
        | (DeValue::Table(_), Value::Table(_)) => true,
        _ => false,
    }
}

/// The fixed keys of a table.
fn fixed(shape: &Table) -> Vec<&str> {
    shape.keys().map(String::as_str).filter(|key| *key != ANY).collect()
}

fn similar<'a>(name: &str, shape: &'a Table) -> Option<&'a str> {
    mistyped(name, &fixed(shape))
}

/// The message about an unknown key: a similar one of the same table, then the tables that have the key, then what comes closest.
fn unknown(name: &str, here: &Table, prefix: &str, whole: &Table) -> String {
    let what = format!("unknown key '{prefix}{name}'");
    if let Some(meant) = similar(name, here) {
        return format!("{what}; did you mean '{prefix}{meant}'?");
    }
    let mut places = Vec::new();
    places_of(name, whole, "", &mut places);
    if !places.is_empty() {
        places.truncate(TABLES_MAX);
        return format!("{what}; did you mean {}?", alternatives(&places));
    }
    let known = fixed(here);
    let nearest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match nearest {
        Some((_, candidate)) => format!("{what}; did you mean '{prefix}{candidate}'?"),
        None => format!("{what}; known here: {}", known.join(", ")),
    }
}

/// The tables of the file that have a key, or are named by it.
fn places_of(name: &str, within: &Table, path: &str, found: &mut Vec<String>) {
    match within.get(name).filter(|_| name != ANY) {
        None => {}
        Some(Value::Table(_)) if path.is_empty() => found.push(format!("[{name}]")),
        Some(Value::Table(_)) => found.push(format!("[{path}.{name}]")),
        Some(_) if path.is_empty() => {
            found.push("the one at the top of the file, above all tables".to_owned());
        }
        Some(_) => found.push(format!("the one in [{path}]")),
    }
    for (key, value) in within {
        let Value::Table(inner) = value else { continue };
        let key = if key == ANY { "\"NAME\"" } else { key };
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        places_of(name, inner, &path, found);
    }
}

/// What the reference says that a key takes. `prefix` is the path of its table, with a dot at its end.
fn kind_of(prefix: &str, name: &str) -> Option<String> {
    let path = prefix.strip_suffix('.').unwrap_or(prefix);
    let of_table = |table: &super::tables::Table| {
        let row = table.rows.iter().find(|(key, ..)| *key == name).map(|(_, kind, _)| *kind);
        row.or_else(|| table.free.map(|(_, kind, _)| kind))
    };
    let kind = TABLES.iter().find(|table| table.name == path).and_then(of_table)?;
    Some(kind.replace('`', ""))
}

/// A type in the words of an operator, with what the reference says in addition.
fn type_of(expected: &Value, kind: Option<&str>) -> String {
    let has_range = kind.is_some_and(|kind| kind.contains(char::is_numeric));
    let own = match expected {
        Value::Integer(_) if has_range => "a whole number",
        Value::Integer(_) => "a whole number, 0 or more",
        Value::Float(_) => "a number",
        Value::Boolean(_) => return "true or false".to_owned(),
        Value::String(_) | Value::Datetime(_) => "text in quotes",
        Value::Array(_) => "a list of texts in quotes",
        Value::Table(_) => "a table",
    };
    match kind {
        Some(kind) if kind != PLAIN_TEXT => format!("{own} ({kind})"),
        _ => own.to_owned(),
    }
}

/// A value as a message shows it.
fn shown(path: &str, value: &DeValue<'_>) -> String {
    match value {
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
        _ if path.contains(SECRET) => "another value".to_owned(),
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => format!("the time {time}"),
    }
}

/// The value at a byte of the text: the path of its table with a dot at its end, its key, and the value.
fn value_at<'a, 'i>(
    given: &'a DeTable<'i>,
    at: usize,
    prefix: &str,
) -> Option<(String, String, &'a DeValue<'i>)> {
    given.iter().find_map(|(key, value)| match value.get_ref() {
        // The text of a table has its keys elsewhere than its header.
        DeValue::Table(inner) => value_at(inner, at, &format!("{prefix}{}.", key.get_ref())),
        leaf => value.span().contains(&at).then(|| (prefix.to_owned(), key.get_ref().to_string(), leaf)),
    })
}

/// Lines are counted from 1.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.get(..span.start).unwrap_or(text).matches('\n').count() + 1
}
