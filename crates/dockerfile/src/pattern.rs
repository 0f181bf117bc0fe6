//! Patterns of `${NAME#pattern}`, `${NAME%pattern}` and `${NAME/pattern/text}`: `*` is any text and `?` one character.
//!
//! A pattern is compared by the set of its positions that the text so far can be at, so no pattern is compared twice. The caller
//! bounds the steps with [`prefix_steps`] and [`replace_steps`].

/// A part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternToken {
    One(char),
    AnyOne,
    Any,
}

/// Which of the parts that a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Shortest,
    Longest,
}

/// How many of the parts that a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    Once,
    All,
}

/// The text without the start that the pattern matches.
pub fn without_prefix(text: &str, pattern: &[PatternToken], extent: Extent) -> String {
    let characters: Vec<char> = text.chars().collect();
    let removed = matched(pattern, &characters, extent).unwrap_or(0);
    characters[removed..].iter().collect()
}

/// The text without the end that the pattern matches.
pub fn without_suffix(text: &str, pattern: &[PatternToken], extent: Extent) -> String {
    let reversed: Vec<char> = text.chars().rev().collect();
    let pattern: Vec<PatternToken> = pattern.iter().rev().copied().collect();
    let removed = matched(&pattern, &reversed, extent).unwrap_or(0);
    reversed[removed..].iter().rev().collect()
}

/// The text with other text for the longest parts that the pattern matches.
pub fn replaced(text: &str, pattern: &[PatternToken], other: &str, times: Times) -> String {
    let characters: Vec<char> = text.chars().collect();
    let (mut result, mut at) = (String::new(), 0);
    while at < characters.len() {
        match matched(pattern, &characters[at..], Extent::Longest).filter(|length| *length > 0) {
            Some(length) => {
                result.push_str(other);
                at += length;
                if times == Times::Once {
                    break;
                }
            }
            None => {
                result.push(characters[at]);
                at += 1;
            }
        }
    }
    result.extend(&characters[at..]);
    result
}

/// Steps of the comparison with a start or an end, at most.
pub fn prefix_steps(text: &str, pattern: &[PatternToken]) -> usize {
    (text.len() + 1).saturating_mul(pattern.len() + 1)
}

/// Steps of a replacement, at most.
pub fn replace_steps(text: &str, pattern: &[PatternToken]) -> usize {
    prefix_steps(text, pattern).saturating_mul(text.len() + 1)
}

/// How many characters at the start the pattern matches.
fn matched(pattern: &[PatternToken], text: &[char], extent: Extent) -> Option<usize> {
    let mut positions = vec![false; pattern.len() + 1];
    positions[0] = true;
    skip_stars(pattern, &mut positions);
    let mut longest = positions[pattern.len()].then_some(0);
    for (at, character) in text.iter().enumerate() {
        if longest.is_some() && extent == Extent::Shortest {
            break;
        }
        positions = after(pattern, &positions, *character);
        skip_stars(pattern, &mut positions);
        if positions[pattern.len()] {
            longest = Some(at + 1);
        }
    }
    longest
}

fn after(pattern: &[PatternToken], positions: &[bool], character: char) -> Vec<bool> {
    let mut next = vec![false; positions.len()];
    for (at, token) in pattern.iter().enumerate().filter(|(at, _)| positions[*at]) {
        match token {
            PatternToken::Any => next[at] = true,
            PatternToken::AnyOne => next[at + 1] = true,
            PatternToken::One(own) if *own == character => next[at + 1] = true,
            PatternToken::One(_) => {}
        }
    }
    next
}

/// A star can stand for nothing.
fn skip_stars(pattern: &[PatternToken], positions: &mut [bool]) {
    for (at, token) in pattern.iter().enumerate() {
        if positions[at] && *token == PatternToken::Any {
            positions[at + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(pattern: &str) -> Vec<PatternToken> {
        let token = |character| match character {
            '*' => PatternToken::Any,
            '?' => PatternToken::AnyOne,
            other => PatternToken::One(other),
        };
        pattern.chars().map(token).collect()
    }

    #[test]
    fn starts_and_ends_are_removed() {
        let file = "archive.tar.gz";
        let prefix = |pattern: &str, extent| without_prefix(file, &tokens(pattern), extent);
        let suffix = |pattern: &str, extent| without_suffix(file, &tokens(pattern), extent);
        assert_eq!(prefix("*.", Extent::Shortest), "tar.gz");
        assert_eq!(prefix("*.", Extent::Longest), "gz");
        assert_eq!(suffix(".*", Extent::Shortest), "archive.tar");
        assert_eq!(suffix(".*", Extent::Longest), "archive");
        assert_eq!(suffix(".??", Extent::Longest), "archive.tar");
        assert_eq!(
            (prefix("x", Extent::Longest), suffix("", Extent::Longest)),
            (file.to_owned(), file.to_owned())
        );
        assert_eq!(prefix("*", Extent::Longest), "");
    }

    #[test]
    fn parts_are_replaced() {
        let replace = |pattern: &str, other: &str, times| replaced("/a/b/ä", &tokens(pattern), other, times);
        assert_eq!(replace("/", "_", Times::All), "_a_b_ä");
        assert_eq!(replace("/", "", Times::Once), "a/b/ä");
        assert_eq!(replace("/?", "x", Times::All), "xxx");
        assert_eq!(replace("b*", "", Times::Once), "/a/");
        assert_eq!(replace("", "x", Times::All), "/a/b/ä");
    }
}
