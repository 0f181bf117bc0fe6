//! Which headers of a client reach the program inside. Pure.
//!
//! Only the relay states the client and the address to the program, so it removes every forwarding header, even that of a trusted
//! proxy. Many programs treat `_` and `-` in a name as the same, so both spellings are one name here. Headers with a key or a token
//! are removed whatever their name.

use axum::http::header::{HeaderMap, HeaderName};

use super::secrets::holds_secret;

/// Prefixes of names that only proxies write.
const PREFIXES: [&str; 6] =
    ["x-forwarded", "cf-connecting-ip", "x-envoy-", "x-arr-", "x-ssl-", "x-client-cert"];

/// Names that only proxies write: the client, its protocol, the requested address, and the authenticated user.
const PROXY_HEADERS: [&str; 37] = [
    "client-cert",
    "client-cert-chain",
    "client-ip",
    "cf-pseudo-ipv4",
    "cf-visitor",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "front-end-https",
    "proxy-client-ip",
    "remote-addr",
    "remote-user",
    "ssl-client-cert",
    "ssl-client-verify",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-host",
    "x-http-host-override",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-url",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ident",
    "x-remote-ip",
    "x-remote-user",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
];

/// Further names whose spelling with `_` a program could take for the header itself.
const NO_UNDERSCORE: [&str; 13] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-sandbox-token",
];

/// Removes what the program must not get.
pub fn apply(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| {
            is_of_proxies(name) || holds_secret(name.as_str().as_bytes()) || holds_secret(value.as_bytes())
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in names {
        headers.remove(name);
    }
}

fn is_of_proxies(name: &HeaderName) -> bool {
    let spelled = name.as_str();
    let known =
        |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || PROXY_HEADERS.contains(&name);
    if !spelled.contains('_') {
        return known(spelled);
    }
    let name = spelled.replace('_', "-");
    known(&name) || NO_UNDERSCORE.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::super::secrets::tests::{KEY, base64, percent};
    use super::*;

    fn is_forwarded(name: &str, value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("x-own", HeaderValue::from_static("1"));
        headers
            .insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        apply(&mut headers);
        assert!(headers.contains_key("x-own"));
        headers.len() == 2
    }

    #[test]
    fn no_header_of_a_proxy_comes_from_a_client_in_any_spelling() {
        let names = "Forwarded X-Forwarded-For X-Forwarded-Port X-Forwarded-Proto X-Forwarded-Host X-Forwarded-Prefix \
            X-Forwarded-Server X-Forwarded-Client-Cert X-Forwarded X-Real-IP True-Client-IP CF-Connecting-IP \
            CF-Connecting-IPv6 X-Client-IP Client-IP X-Cluster-Client-IP Fastly-Client-IP Fly-Client-IP \
            X-Original-Forwarded-For X-Original-URL X-Rewrite-URL X-Original-Host X-Remote-User Remote-User \
            X-Envoy-External-Address X-ARR-SSL Front-End-Https X-Scheme X-Azure-ClientIP Client-Cert X-SSL-Client-Verify";
        for name in names.split_whitespace() {
            for name in [name.to_owned(), name.replace('-', "_"), name.replacen('-', "_", 1)] {
                assert!(!is_forwarded(&name, "192.0.2.66"), "{name}");
            }
        }
        for name in ["transfer_encoding", "content_length", "x_sandbox_token", "cookie_", "HOST"] {
            assert_eq!(is_forwarded(name, "1"), matches!(name, "cookie_" | "HOST"), "{name}");
        }
        for own in ["X-Api-Key", "x_own_header", "Via", "X-Requested-With", "Accept", "X-Forward"] {
            assert!(is_forwarded(own, "1"), "{own}");
        }
    }

    #[test]
    fn headers_with_a_key_are_removed() {
        for value in [KEY.to_owned(), percent(KEY), base64(KEY.as_bytes()), format!("Token token=\"{KEY}\"")]
        {
            for name in ["X-Api-Key", "Api-Key", "X-Auth-Token", "Private-Token", "User-Agent", "Referer"] {
                assert!(!is_forwarded(name, &value), "{name}: {value}");
            }
        }
        assert!(!is_forwarded(KEY, "1"), "a key for a name");
        assert!(is_forwarded("X-Api-Key", "a key of the program's own"));
    }
}
