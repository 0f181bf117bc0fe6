//! Joins the lines of an instruction, and splits its arguments into words. Quotes stay in the words; `expand` removes them.

/// Words that are separated by white space outside of quotes.
pub fn split(text: &str, escape: char) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut quote, mut is_escaped) = (None, None, false);
    for (at, character) in text.char_indices() {
        if start.is_none() {
            if character.is_whitespace() {
                continue;
            }
            start = Some(at);
        }
        if std::mem::take(&mut is_escaped) {
            continue;
        }
        match (quote, character) {
            (None, character) if character.is_whitespace() => {
                words.extend(start.take().map(|start| &text[start..at]));
            }
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), character) if open == character => quote = None,
            // In single quotes nothing is escaped.
            (None | Some('"'), character) if character == escape => is_escaped = true,
            _ => {}
        }
    }
    words.extend(start.map(|start| &text[start..]));
    words
}

/// The pairs of `ENV` and `LABEL`: `NAME=VALUE …`, or the old form `NAME VALUE`, whose value is the rest of the line.
pub fn pairs(text: &str, escape: char) -> Result<Vec<(String, String)>, String> {
    let words = split(text, escape);
    let Some(first) = words.first() else { return Ok(Vec::new()) };
    if !first.contains('=') {
        let value = text.trim_start()[first.len()..].trim();
        if value.is_empty() {
            return Err(format!("'{first}' has no value; write {first}=VALUE"));
        }
        return Ok(vec![((*first).to_owned(), value.to_owned())]);
    }
    let pair = |word: &&str| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("'{word}' is not of the form NAME=VALUE")),
    };
    words.iter().map(pair).collect()
}

/// Joins the lines that an escape character continues. Comments and empty lines in between are dropped.
pub fn join_lines(text: &str, escape: char) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut continues = false;
    for line in text.split('\n') {
        let trimmed = line.trim();
        if continues && (trimmed.is_empty() || trimmed.starts_with('#')) {
            continue;
        }
        if !joined.is_empty() && !continues {
            joined.push('\n');
        }
        let without = line.trim_end().strip_suffix(escape);
        continues = without.is_some();
        joined.push_str(without.unwrap_or(line));
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_keep_words_together() {
        assert_eq!(split(r#" a="b c" d=e\ f  g='h \' i "#, '\\'), [r#"a="b c""#, r"d=e\ f", r"g='h \'", "i"]);
        assert_eq!(split("", '\\'), Vec::<&str>::new());
        assert_eq!(split("\"open a", '\\'), ["\"open a"]);
    }

    #[test]
    fn the_old_form_has_one_pair() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(pairs("A b  c", '\\'), Ok(vec![pair("A", "b  c")]));
        assert_eq!(pairs("A=b C=", '\\'), Ok(vec![pair("A", "b"), pair("C", "")]));
        assert!(pairs("A", '\\').is_err());
        assert!(pairs("A=b c", '\\').is_err());
        assert!(pairs("=b", '\\').is_err());
    }
}
