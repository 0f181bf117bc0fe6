//! Compares the file with the declarations of its keys: unknown keys, keys in the wrong table, and values of the wrong type.
//!
//! Runs before the file becomes a [`Config`](super::Config), to report all errors at once, each with its line and in the terms of the
//! file. What passes here can still have a value that its type refuses, such as a word outside a set: [`of_value`] reports that.

use std::ops::Range;

use rules::{alternatives, mistyped, quoted};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declare::{DeclaredKey, DeclaredTable, Shape, below};
use super::problems::Problem;

/// Values of keys with this in their name are not shown.
const SECRET: &str = "secret";
/// What the reference says of a text without rules.
const PLAIN_TEXT: &str = "text";
/// The similarity (0 to 1) from which on a known key is suggested.
const ALIKE: f64 = 0.75;
/// The most tables that are named for one key.
const TABLES_MAX: usize = 4;

/// All unknown keys, and all values of a wrong type.
pub fn compare(text: &str, given: &DeTable<'_>, file: &DeclaredTable) -> Vec<Problem> {
    let mut comparison = Comparison { text, file, problems: Vec::new() };
    comparison.table(given, file, "");
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
pub fn of_value(text: &str, given: &DeTable<'_>, file: &DeclaredTable, error: &toml::de::Error) -> Problem {
    let span = error.span();
    let found = span.as_ref().and_then(|span| value_at(given, file, span.start, ""));
    let message = match found {
        None => error.message().to_owned(),
        Some((path, key, _)) if key.kind.is_empty() => format!("{path}: {}", error.message()),
        Some((path, key, value)) => {
            let allowed = match value {
                DeValue::Integer(_) => allowed(key),
                _ => words(key),
            };
            format!("{path} is {}; it must be {allowed}", shown(&path, value))
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
    /// The whole file.
    file: &'a DeclaredTable,
    problems: Vec<Problem>,
}

impl Comparison<'_> {
    /// `path` is that of the table.
    fn table(&mut self, given: &DeTable<'_>, table: &DeclaredTable, path: &str) {
        for (key, value) in given {
            let name: &str = key.get_ref();
            match (table.fixed(name), &table.names) {
                (Some(known), _) => self.value(value, known, &below(path, name)),
                // A mistyped key of a table that also has names of the operator's choice.
                (None, Some(any))
                    if fits(value.get_ref(), &any.shape) || mistyped(name, &fixed(table)).is_none() =>
                {
                    self.value(value, any, &below(path, &format!("\"{name}\"")));
                }
                (None, _) => {
                    let message = unknown(name, table, path, self.file);
                    self.report(key.span(), message);
                }
            }
        }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, key: &DeclaredKey, path: &str) {
        match (value.get_ref(), &key.shape) {
            (DeValue::Table(given), Shape::Table(table)) => self.table(given, table, path),
            (DeValue::Array(all), Shape::Texts | Shape::TextOrTexts) => self.texts(all, path),
            (given, shape) if fits(given, shape) => {}
            (given, _) => {
                let message = format!("{path} is {}; it must be {}", shown(path, given), allowed(key));
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

/// Whether the value has the shape.
fn fits(given: &DeValue<'_>, shape: &Shape) -> bool {
    match (given, shape) {
        (DeValue::Integer(number), Shape::WholeNumber) => !number.as_str().starts_with('-'),
        (DeValue::Integer(_) | DeValue::Float(_), Shape::Number)
        | (DeValue::String(_), Shape::Text | Shape::TextOrTexts)
        | (DeValue::Boolean(_), Shape::TrueOrFalse)
        | (DeValue::Array(_), Shape::Texts | Shape::TextOrTexts)
        | (DeValue::Table(_), Shape::Table(_)) => true,
        _ => false,
    }
}

/// The fixed keys of a table, by their names.
fn fixed(table: &DeclaredTable) -> Vec<&str> {
    let mut names: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
    names.sort_unstable();
    names
}

/// The message about an unknown key: a similar one of the same table, then the tables that have the key, then what comes closest.
fn unknown(name: &str, here: &DeclaredTable, path: &str, file: &DeclaredTable) -> String {
    let what = format!("unknown key '{}'", below(path, name));
    let known = fixed(here);
    if let Some(meant) = mistyped(name, &known) {
        return format!("{what}; did you mean '{}'?", below(path, meant));
    }
    let mut places = Vec::new();
    places_of(name, file, "", &mut places);
    if !places.is_empty() {
        places.truncate(TABLES_MAX);
        return format!("{what}; did you mean {}?", alternatives(&places));
    }
    let nearest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match nearest {
        Some((_, candidate)) => format!("{what}; did you mean '{}'?", below(path, candidate)),
        None => format!("{what}; known here: {}", known.join(", ")),
    }
}

/// The tables of the file that have a key, or are named by it.
fn places_of(name: &str, table: &DeclaredTable, path: &str, found: &mut Vec<String>) {
    match table.fixed(name).map(|key| &key.shape) {
        None => {}
        Some(Shape::Table(_)) => found.push(format!("[{}]", below(path, name))),
        Some(_) if path.is_empty() => {
            found.push("the one at the top of the file, above all tables".to_owned());
        }
        Some(_) => found.push(format!("the one in [{path}]")),
    }
    let mut keys: Vec<&DeclaredKey> = table.keys.iter().chain(table.names.as_deref()).collect();
    keys.sort_by_key(|key| key.name);
    for key in keys {
        if let Shape::Table(inner) = &key.shape {
            places_of(name, inner, &below(path, key.name), found);
        }
    }
}

/// What a key takes, as the reference says it.
fn words(key: &DeclaredKey) -> String {
    key.takes().replace('`', "")
}

/// What a key takes: its type in the words of an operator, with what the reference says in addition.
fn allowed(key: &DeclaredKey) -> String {
    let own = match &key.shape {
        Shape::WholeNumber if key.shown_range().is_some() => "a whole number",
        Shape::WholeNumber => "a whole number, 0 or more",
        Shape::Number => "a number",
        Shape::TrueOrFalse => return "true or false".to_owned(),
        Shape::Text | Shape::TextOrTexts => "text in quotes",
        Shape::Texts => "a list of texts in quotes",
        Shape::Table(_) => "a table",
    };
    match key.kind {
        "" | PLAIN_TEXT => own.to_owned(),
        _ => format!("{own} ({})", words(key)),
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

/// The value at a byte of the text, with its path and its declaration.
fn value_at<'a, 'i>(
    given: &'a DeTable<'i>,
    table: &'a DeclaredTable,
    at: usize,
    path: &str,
) -> Option<(String, &'a DeclaredKey, &'a DeValue<'i>)> {
    given.iter().find_map(|(key, value)| {
        let name: &str = key.get_ref();
        let (path, key) = (below(path, name), table.find(name)?);
        match (value.get_ref(), &key.shape) {
            // The text of a table has its keys elsewhere than its header.
            (DeValue::Table(inner), Shape::Table(table)) => value_at(inner, table, at, &path),
            (leaf, _) => value.span().contains(&at).then_some((path, key, leaf)),
        }
    })
}

/// Lines are counted from 1.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.get(..span.start).unwrap_or(text).matches('\n').count() + 1
}
