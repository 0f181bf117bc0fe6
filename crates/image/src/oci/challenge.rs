//! The header with which a registry says how it wants requests to be authenticated.

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// How a registry wants requests to be authenticated.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// The challenge of a response: for a token, if the registry gives a choice.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let parsed: Vec<Self> = challenges.filter_map(Self::parse).collect();
        let is_bearer = |challenge: &Self| matches!(challenge, Self::Bearer { .. });
        let best = parsed.iter().position(is_bearer).unwrap_or(0);
        parsed.into_iter().nth(best)
    }

    fn parse(text: &str) -> Option<Self> {
        let (scheme, parameters) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        let mut rest = parameters;
        while let Some((name, after)) = rest.split_once('=') {
            let (value, next) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_once(',').unwrap_or((after, "")),
            };
            match name.trim_start_matches([',', ' ']).to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value.trim().to_owned()),
                "service" => service = Some(value.trim().to_owned()),
                _ => {}
            }
            rest = next;
        }
        Some(Self::Bearer { realm: realm?, service })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (text, expected) in [
            (
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io""#,
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            (
                r#"bearer service=a, error="x=y,z", realm="https://a/t?b=c,d", scope="repository:a:pull""#,
                bearer("https://a/t?b=c,d", Some("a")),
            ),
            (r#"Bearer realm=https://a/t"#, bearer("https://a/t", None)),
            (r#"Basic realm="x""#, Some(Challenge::Basic)),
            ("Basic", Some(Challenge::Basic)),
            ("Bearer", None),
            (r#"Bearer realm="open"#, None),
            ("Negotiate abc", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(text), expected, "{text}");
        }
    }
}
