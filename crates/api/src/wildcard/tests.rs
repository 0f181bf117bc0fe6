use glob::MatchOptions;
use proptest::prelude::*;

use super::*;

/// The pattern matches the path, in the time that a hostile pattern gets at most.
fn matches(pattern: &str, path: &str) -> bool {
    Pattern::new(pattern).unwrap().matches(path)
}

#[test]
fn wildcards_stand_for_parts_of_a_path() {
    for (pattern, path, expected) in [
        ("a.txt", "a.txt", true),
        ("*.txt", "a.txt", true),
        ("*.txt", "b/a.txt", false),
        ("*", ".env", true),
        ("?.txt", "é.txt", true),
        ("[a-c]x[!0-9]", "bxy", true),
        ("[a-c]x[!0-9]", "bx7", false),
        ("[^a-c]x", "dx", true),
        ("[^a-c]x", "ax", false),
        ("[a^]", "^", true),
        (r"\*\[a", "*[a", true),
        (r"\*", "a", false),
        ("[]]", "]", true),
        ("[a-]", "-", true),
        ("**/b", "b", true),
        ("**/b", "a/a/b", true),
        ("a/**/b", "a/b", true),
        ("a/**/b", "a/x/y/b", true),
        ("a/**/b/*/d", "a/b/c/b/c/d", true),
        ("a/**", "a", false),
        ("a/**", "a/b/c", true),
        ("**", "a/b", true),
        ("a*b*c", "aXbXbXc", true),
        ("a*b*c", "aXbXbX", false),
    ] {
        assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
    }
    assert!(Pattern::literal("a*[/b").matches("a*[/b") && !Pattern::literal("a*").matches("ab"));
}

#[test]
fn wrong_patterns_have_a_reason() {
    for (pattern, part) in [("[", "not closed"), ("[]", "not closed"), ("a**", "whole name"), ("***", "two")]
    {
        assert!(Pattern::new(pattern).unwrap_err().contains(part), "{pattern}");
    }
}

#[test]
fn the_steps_are_at_most_the_product_of_the_lengths() {
    for stars in [8, 14, 100, 1000] {
        let name = "a".repeat(4000);
        let long = format!("{}{}b", "*a".repeat(stars), "a".repeat(1000));
        for pattern in
            ["*a".repeat(stars) + "b", "a*".repeat(stars) + "?b", "*[ab]".repeat(stars) + "b", long]
        {
            let mut effort = Effort::new(u64::MAX);
            assert!(!Pattern::new(&pattern).unwrap().matches_within(&name, &mut effort).unwrap());
            let steps = u64::MAX - effort.left;
            assert!(steps <= 3 * (pattern.len() * name.len()) as u64, "{stars} stars took {steps} steps");
        }
        let deep = "a/".repeat(2000) + "a";
        let pattern = "**/a/".repeat(stars) + "b";
        let mut effort = Effort::new(u64::MAX);
        assert!(!Pattern::new(&pattern).unwrap().matches_within(&deep, &mut effort).unwrap());
        assert!(u64::MAX - effort.left <= 3 * (pattern.len() * deep.len()) as u64);
    }
}

#[test]
fn work_beyond_the_effort_ends() {
    let pattern = Pattern::new(&format!("*{}b", "a".repeat(1000))).unwrap();
    assert_eq!(pattern.matches_within(&"a".repeat(4000), &mut Effort::new(1_000_000)), Err(EffortExceeded));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    /// The matcher that was used before, with few stars because it tries all combinations.
    #[test]
    fn matches_agree_with_another_matcher(pattern in "[ab/*?\\[\\]!-]{0,9}", path in "[ab/\\]-]{1,9}") {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        match (Pattern::new(&pattern), glob::Pattern::new(&pattern)) {
            (Ok(own), Ok(other)) => {
                prop_assert_eq!(own.matches(&path), other.matches_with(&path, options));
            }
            (own, other) => prop_assert_eq!(own.is_err(), other.is_err()),
        }
    }

    #[test]
    fn nothing_panics(pattern in ".{0,60}", path in ".{0,60}") {
        if let Ok(pattern) = Pattern::new(&pattern) {
            pattern.matches(&path);
        }
    }
}
