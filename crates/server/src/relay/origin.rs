//! Whose page a request of a browser comes from. All ports are one site to a browser, whosever sandboxes they are: a cookie goes along
//! with what another tenant's page asks for, and websockets are under no rule of the browser's at all. So a token in a cookie counts
//! only where the browser says that the port's own page asks, or that a person goes there.

use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, HeaderName, Method};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether a cookie that came with this request may let it in. Clients that say nothing of where they come from are no browsers of
/// our day, and bring what they bring by intent.
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
    // A link that somebody followed. It shows the page to that person, and to nobody's script.
    *method == Method::GET && says(&MODE, "navigate") && says(&DEST, "document")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &Method, headers: &[(&str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        may_use_cookies(method, &headers.collect(), "https", "8080-sb-a.test:8443")
    }

    #[test]
    fn the_ports_own_page_and_a_person_may() {
        let own = ("origin", "https://8080-sb-a.test:8443");
        assert!(asked(&Method::GET, &[]));
        assert!(asked(&Method::POST, &[own]));
        assert!(asked(&Method::POST, &[own, ("sec-fetch-site", "same-origin")]));
        assert!(asked(&Method::GET, &[("sec-fetch-site", "none")]));
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(asked(&Method::GET, &link));
        assert!(!asked(&Method::POST, &link));
    }

    #[test]
    fn another_page_may_not() {
        for origin in
            ["https://8080-sb-b.test:8443", "http://8080-sb-a.test:8443", "https://8080-sb-a.test", "null"]
        {
            assert!(!asked(&Method::GET, &[("origin", origin)]), "{origin}");
        }
        for site in ["same-site", "cross-site", "else"] {
            assert!(!asked(&Method::GET, &[("sec-fetch-site", site)]), "{site}");
            let framed =
                [("sec-fetch-site", site), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
            assert!(!asked(&Method::GET, &framed), "{site}");
        }
        let own = ("origin", "https://8080-sb-a.test:8443");
        assert!(!asked(&Method::GET, &[own, ("origin", "https://8080-sb-b.test:8443")]));
    }
}
