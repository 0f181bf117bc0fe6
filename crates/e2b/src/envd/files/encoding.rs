//! The choice of a content encoding. Identity is preferred: compression costs more than the network between client and host.

use axum::http::{HeaderMap, header};

/// An encoding of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
}

/// Chooses by `Accept-Encoding`. `None` if the client accepts neither encoding.
pub fn choose(headers: &HeaderMap) -> Option<Encoding> {
    let (mut identity, mut gzip, mut any) = (None, None, None);
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    for item in values.flat_map(|value| value.split(',')) {
        let (name, parameter) = item.split_once(';').unwrap_or((item, ""));
        let weight = parameter.trim().strip_prefix("q=").and_then(|text| text.parse::<f32>().ok());
        let is_accepted = Some(weight.is_none_or(|weight| weight > 0.0));
        match name.trim().to_ascii_lowercase().as_str() {
            "identity" => identity = is_accepted,
            "gzip" | "x-gzip" => gzip = is_accepted,
            "*" => any = is_accepted,
            _ => {}
        }
    }
    if identity.or(any).unwrap_or(true) {
        return Some(Encoding::Identity);
    }
    gzip.or(any).unwrap_or(false).then_some(Encoding::Gzip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_preferred_unless_it_is_refused() {
        for (value, expected) in [
            ("gzip, deflate", Some(Encoding::Identity)),
            ("", Some(Encoding::Identity)),
            ("gzip, identity;q=0", Some(Encoding::Gzip)),
            ("gzip;q=0.5, *;q=0", Some(Encoding::Gzip)),
            ("identity;q=0", None),
            ("*;q=0", None),
            ("identity, *;q=0", Some(Encoding::Identity)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            assert_eq!(choose(&headers), expected, "{value}");
        }
        assert_eq!(choose(&HeaderMap::new()), Some(Encoding::Identity));
    }
}
