//! Expands variables in a word, and removes its quotes and escapes: `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME:+other}`,
//! `${NAME:?message}`, and the same without the colon; `${NAME#pattern}`, `${NAME%pattern}`, `${NAME/pattern/text}`, and the same with
//! the operator twice. As in other builders, `$$`, `$1` and the like are variables that nobody sets.

use std::iter::Peekable;
use std::str::CharIndices;

use crate::pattern::{
    Extent, PatternToken, Times, prefix_steps, replace_steps, replaced, without_prefix, without_suffix,
};

/// The most text that one word may become. A variable can be used many times.
const MAX_EXPANDED: usize = 128 * 1024;
/// Most nested `${…}`.
const MAX_DEPTH: usize = 16;

/// Most steps of the comparison of one value with a pattern.
const MAX_PATTERN_STEPS: usize = 1 << 16;

/// Expands a word. `find` returns the value of a variable.
pub fn expand(word: &str, escape: char, find: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expander = Expander { rest: word.char_indices().peekable(), escape, find, depth: 0 };
    expander.until(None)
}

struct Expander<'a> {
    rest: Peekable<CharIndices<'a>>,
    escape: char,
    find: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
}

impl Expander<'_> {
    fn next(&mut self) -> Option<char> {
        self.rest.next().map(|(_, character)| character)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().map(|(_, character)| *character)
    }

    /// Expands up to a character, which is removed too, or up to the end.
    fn until(&mut self, end: Option<char>) -> Result<String, String> {
        let mut expanded = String::new();
        loop {
            let Some(character) = self.next() else {
                return match end {
                    None => Ok(expanded),
                    Some(end) => Err(format!("'{end}' is missing")),
                };
            };
            match character {
                character if Some(character) == end => return Ok(expanded),
                '\'' => self.single_quoted(&mut expanded)?,
                '"' => self.double_quoted(&mut expanded)?,
                '$' => self.variable(&mut expanded)?,
                character if character == self.escape => expanded.extend(self.next()),
                character => expanded.push(character),
            }
            check_size(&expanded)?;
        }
    }

    fn single_quoted(&mut self, expanded: &mut String) -> Result<(), String> {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(character) => expanded.push(character),
                None => return Err("a single quote is not closed".to_owned()),
            }
        }
    }

    fn double_quoted(&mut self, expanded: &mut String) -> Result<(), String> {
        loop {
            match self.next() {
                Some('"') => return Ok(()),
                Some('$') => self.variable(expanded)?,
                Some(character) if character == self.escape => match self.next() {
                    Some(next) if next == '"' || next == '$' || next == self.escape => expanded.push(next),
                    Some(next) => expanded.extend([character, next]),
                    None => {}
                },
                Some(character) => expanded.push(character),
                None => return Err("a double quote is not closed".to_owned()),
            }
            check_size(expanded)?;
        }
    }

    /// After the `$`.
    fn variable(&mut self, expanded: &mut String) -> Result<(), String> {
        match self.peek() {
            Some('{') => {
                self.next();
                self.braced(expanded)
            }
            Some(character) if is_name(character) || is_special(character) => {
                let name = self.name();
                expanded.push_str(&(self.find)(&name).unwrap_or_default());
                Ok(())
            }
            _ => {
                expanded.push('$');
                Ok(())
            }
        }
    }

    /// A name, a number, or one of the other characters that are variables of a shell.
    fn name(&mut self) -> String {
        let mut name = String::new();
        let first = self.peek();
        if let Some(special) = first.filter(|character| is_special(*character)) {
            self.next();
            name.push(special);
            return name;
        }
        let is_number = first.is_some_and(|character| character.is_ascii_digit());
        let belongs =
            |character: &char| if is_number { character.is_ascii_digit() } else { is_name(*character) };
        while let Some(character) = self.peek().filter(belongs) {
            name.push(character);
            self.next();
        }
        name
    }

    fn braced(&mut self, expanded: &mut String) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("variables are nested deeper than {MAX_DEPTH}"));
        }
        let name = self.name();
        if name.is_empty() {
            return Err("'${' is not followed by the name of a variable".to_owned());
        }
        let mut operator = self.next();
        let empty_counts = operator == Some(':');
        if empty_counts {
            operator = self.next();
        }
        let value = (self.find)(&name).filter(|value| !(empty_counts && value.is_empty()));
        let result = match operator {
            Some('}') if !empty_counts => value.unwrap_or_default(),
            Some('-') => {
                let default = self.until(Some('}'))?;
                value.unwrap_or(default)
            }
            Some('+') => {
                let other = self.until(Some('}'))?;
                value.map(|_| other).unwrap_or_default()
            }
            Some('?') => {
                let message = self.until(Some('}'))?;
                value.ok_or_else(|| format!("the variable {name} is not set: {message}"))?
            }
            Some(operator @ ('#' | '%' | '/')) if !empty_counts => {
                self.changed(operator, &value.unwrap_or_default())?
            }
            None => return Err("'}' is missing".to_owned()),
            Some(_) => {
                let message = "has an unsupported operator; supported: :- - :+ + :? ? # ## % %% / //";
                return Err(format!("${{{name}…}} {message}"));
            }
        };
        self.depth -= 1;
        expanded.push_str(&result);
        Ok(())
    }
}

impl Expander<'_> {
    /// A value behind an operator with a pattern, up to the `}`.
    fn changed(&mut self, operator: char, value: &str) -> Result<String, String> {
        let is_twice = self.peek() == Some(operator);
        if is_twice {
            self.next();
        }
        if operator == '/' {
            let pattern = self.pattern('/')?;
            let other = self.until(Some('}'))?;
            check_steps(replace_steps(value, &pattern))?;
            return Ok(replaced(value, &pattern, &other, if is_twice { Times::All } else { Times::Once }));
        }
        let extent = if is_twice { Extent::Longest } else { Extent::Shortest };
        let pattern = self.pattern('}')?;
        check_steps(prefix_steps(value, &pattern))?;
        Ok(match operator {
            '#' => without_prefix(value, &pattern, extent),
            _ => without_suffix(value, &pattern, extent),
        })
    }

    /// Up to a character, which is removed too. What is escaped or quoted stands for itself.
    fn pattern(&mut self, end: char) -> Result<Vec<PatternToken>, String> {
        let mut pattern = Vec::new();
        let mut text = String::new();
        loop {
            let Some(character) = self.next() else { return Err(format!("'{end}' is missing")) };
            match character {
                character if character == end => return Ok(pattern),
                '*' => pattern.push(PatternToken::Any),
                '?' => pattern.push(PatternToken::AnyOne),
                '\'' => self.single_quoted(&mut text)?,
                '"' => self.double_quoted(&mut text)?,
                '$' => self.variable(&mut text)?,
                character if character == self.escape => text.extend(self.next()),
                character => pattern.push(PatternToken::One(character)),
            }
            pattern.extend(text.drain(..).map(PatternToken::One));
            check_steps(pattern.len())?;
        }
    }
}

fn check_steps(steps: usize) -> Result<(), String> {
    if steps <= MAX_PATTERN_STEPS {
        return Ok(());
    }
    Err("a value is too long to be compared with a pattern".to_owned())
}

/// Characters that are variables in a shell.
fn is_special(character: char) -> bool {
    matches!(character, '@' | '*' | '#' | '?' | '-' | '$' | '!')
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn check_size(expanded: &str) -> Result<(), String> {
    if expanded.len() <= MAX_EXPANDED {
        return Ok(());
    }
    Err(format!("a word is longer than {MAX_EXPANDED} bytes after its variables are expanded"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(word: &str) -> Result<String, String> {
        expand(word, '\\', &|name| match name {
            "A" => Some("one two".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_quotes_and_escapes() {
        for (word, expected) in [
            ("x$A-y", "xone two-y"),
            ("${A}s", "one twos"),
            ("'$A'", "$A"),
            ("\"$A\"", "one two"),
            (r"\$A", "$A"),
            (r#""\$A \n \" \\""#, r#"$A \n " \"#),
            (r"a\ b", "a b"),
            ("$", "$"),
            ("$.", "$."),
            ("$NONE", ""),
            ("$$", ""),
            ("a$1b$23c$@d", "abcd"),
            ("${A#* }${A% *}", "twoone"),
            ("${A##*o}${A%%o*}${A#x}", "one two"),
            ("${A/ /_}${A//?o/X}", "one_twoone tX"),
            ("${A/o*/}${NONE%x}${A//\\*/x}", "one two"),
            ("${NONE:-d$A}", "done two"),
            ("${EMPTY:-d}${EMPTY-d}", "d"),
            ("${A:+yes}${EMPTY:+no}${EMPTY+set}", "yesset"),
            ("${NONE:-${OTHER:-deep}}", "deep"),
        ] {
            assert_eq!(expanded(word).as_deref(), Ok(expected), "{word}");
        }
    }

    #[test]
    fn errors_name_the_reason() {
        for (word, part) in [
            ("${A", "'}' is missing"),
            ("${", "name of a variable"),
            ("${A^x}", "unsupported operator"),
            ("${A:#x}", "unsupported operator"),
            ("${A#x", "'}' is missing"),
            ("${A/x}", "'/' is missing"),
            ("${NONE:?give it}", "NONE is not set: give it"),
            ("'a", "single quote"),
            ("\"a", "double quote"),
        ] {
            assert!(expanded(word).unwrap_err().contains(part), "{word}");
        }
        assert!(expanded(&"${NONE:-".repeat(100)).is_err());
        assert!(expanded(&format!("${{A/{}/}}", "*".repeat(2000))).unwrap_err().contains("too long"));
        assert!(expanded(&"$A".repeat(40_000)).unwrap_err().contains("longer than"));
    }

    proptest! {
        #[test]
        fn nothing_panics(word in "[a\\\\\"'${}:+?A#%/*-]{0,40}") {
            let _ = expanded(&word);
        }
    }
}
