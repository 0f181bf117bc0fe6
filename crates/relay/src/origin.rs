//! Decides whether a token in a cookie counts, by the page that a browser's request comes from. To a browser all ports are one site,
//! whatever tenant they belong to: it sends the cookie with requests from another tenant's page, and with websockets from any page.
//! So the cookie counts only if the browser states that the port's own page made the request or that a person navigated to it.

use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, HeaderName, Method};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether the cookies of this request count. A client without `Origin` and `Sec-Fetch-Site` is not a current browser, so it sends
/// its cookies on purpose. `scheme` may come from a trusted proxy's `X-Forwarded-Proto`.
pub fn may_use_cookies(method: &Method, headers: &HeaderMap, scheme: &str, host: &str) -> bool {
    let own_origin = format!("{scheme}://{host}");
    let mut origins = headers.get_all(ORIGIN).iter();
    if !origins.all(|origin| origin.as_bytes().eq_ignore_ascii_case(own_origin.as_bytes())) {
        return false;
    }
    let says = |name: &HeaderName, word: &str| headers.get(name).is_some_and(|value| value == word);
    if !headers.contains_key(&SITE) || says(&SITE, "same-origin") || says(&SITE, "none") {
        return true;
    }
    // A person followed a link. The page is shown to that person and is not readable by scripts of another page.
    *method == Method::GET && says(&MODE, "navigate") && says(&DEST, "document")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(method: &Method, headers: &[(&str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        may_use_cookies(method, &headers.collect(), "https", "8080-sb-a.test:8443")
    }

    #[test]
    fn the_ports_own_page_and_a_person_may() {
        let own = ("origin", "https://8080-sb-a.test:8443");
        assert!(is_allowed(&Method::GET, &[]));
        assert!(is_allowed(&Method::POST, &[own]));
        assert!(is_allowed(&Method::POST, &[own, ("sec-fetch-site", "same-origin")]));
        assert!(is_allowed(&Method::GET, &[("sec-fetch-site", "none")]));
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(is_allowed(&Method::GET, &link));
        assert!(!is_allowed(&Method::POST, &link));
    }

    #[test]
    fn another_origin_may_not_use_the_cookie() {
        for origin in
            ["https://8080-sb-b.test:8443", "http://8080-sb-a.test:8443", "https://8080-sb-a.test", "null"]
        {
            assert!(!is_allowed(&Method::GET, &[("origin", origin)]), "{origin}");
        }
        for site in ["same-site", "cross-site", "else"] {
            assert!(!is_allowed(&Method::GET, &[("sec-fetch-site", site)]), "{site}");
            let framed =
                [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
            assert!(!is_allowed(&Method::GET, &framed), "{site}");
        }
        let own = ("origin", "https://8080-sb-a.test:8443");
        assert!(!is_allowed(&Method::GET, &[own, ("origin", "https://8080-sb-b.test:8443")]));
    }
}
