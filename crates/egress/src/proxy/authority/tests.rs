use hyper::Request;

use super::*;

fn host_of(version: Version, method: &str, uri: &str, hosts: &[&str]) -> Result<String, Reason> {
    let mut request = Request::builder().version(version).method(method).uri(uri);
    for host in hosts {
        request = request.header("Host", *host);
    }
    requested_host(&request.body(()).unwrap().into_parts().0)
}

#[test]
fn all_host_fields_must_name_the_same_host() {
    let good = Ok("good.test".to_owned());
    let one = |uri, hosts: &[&str]| host_of(Version::HTTP_11, "GET", uri, hosts);
    assert_eq!(one("/", &["good.test"]), good);
    assert_eq!(one("/", &["GOOD.test.:8080"]), good);
    assert_eq!(one("/", &["good.test:"]), good);
    assert_eq!(one("http://good.test:80/", &["good.test"]), good);
    assert_eq!(host_of(Version::HTTP_11, "OPTIONS", "*", &["good.test"]), good);
    for (uri, hosts, reason) in [
        ("/", &[][..], Reason::NoName),
        ("/", &[""], Reason::NoName),
        ("/", &["192.0.2.1:80"], Reason::NoName),
        ("/", &["[::1]"], Reason::NoName),
        ("http://good.test/", &[], Reason::NoName),
        ("http://evil.test/", &["good.test"], Reason::Malformed),
        ("http://evil.test@good.test/", &["good.test"], Reason::Malformed),
        ("https://good.test/", &["good.test"], Reason::Malformed),
        ("/", &["good.test", "good.test"], Reason::Malformed),
        ("/", &["good.test,evil.test"], Reason::Malformed),
        ("/", &["good.test:80:80"], Reason::Malformed),
        ("/", &["good.test:123456"], Reason::Malformed),
        ("/", &["good.test evil.test"], Reason::Malformed),
        ("/", &["good.test/x"], Reason::Malformed),
    ] {
        assert_eq!(one(uri, hosts), Err(reason), "{uri} {hosts:?}");
    }
    let two = |uri, hosts: &[&str]| host_of(Version::HTTP_2, "GET", uri, hosts);
    assert_eq!(two("http://good.test/", &[]), good);
    assert_eq!(two("/", &["good.test"]), good);
    assert_eq!(two("http://good.test/", &["evil.test"]), Err(Reason::Malformed));
    assert_eq!(two("/", &[]), Err(Reason::NoName));
    assert_eq!(host_of(Version::HTTP_2, "CONNECT", "good.test:443", &["good.test"]), Err(Reason::Malformed));
}

#[test]
fn upgrades_to_protocols_with_host_names_are_removed() {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, "keep-alive, Upgrade, HTTP2-Settings".parse().unwrap());
    headers.insert(UPGRADE, "h2c".parse().unwrap());
    headers.insert(HTTP2_SETTINGS, "AAMAAABk".parse().unwrap());
    assert!(!filter_upgrade(&mut headers));
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[CONNECTION], "keep-alive");
    for upgrade in ["websocket, h2c", "TLS/1.0", "HTTP/2.0"] {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, "upgrade".parse().unwrap());
        headers.insert(UPGRADE, upgrade.parse().unwrap());
        assert!(!filter_upgrade(&mut headers) && headers.is_empty(), "{upgrade}");
    }
    let mut headers = HeaderMap::new();
    headers.insert(UPGRADE, "websocket".parse().unwrap());
    assert!(!filter_upgrade(&mut headers), "`Connection` does not name it");
    headers.insert(CONNECTION, "Upgrade".parse().unwrap());
    assert!(filter_upgrade(&mut headers) && headers.len() == 2);
}
