use super::*;

/// A hello of TLS 1.2 with nothing but a name.
fn hello_for(name: &str) -> Vec<u8> {
    let counted = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let list = counted(&[&[0][..], &counted(name.as_bytes())].concat());
    let extensions = counted(&[&[0, 0][..], &counted(&list)].concat());
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0, 47, 1, 0], &extensions].concat();
    let message = [&[1, 0][..], &counted(&body)].concat();
    [&[22, 3, 3][..], &counted(&message)].concat()
}

fn asking() -> Vec<u8> {
    [&[0x16, 3, 3, 0, 0x58, 2, 0, 0, 0x54, 3, 3][..], &RANDOM, &[0; 50]].concat()
}

#[test]
fn a_hello_retry_request_is_detected_by_its_random() {
    let asking = asking();
    let warning = [0x15, 3, 3, 0, 2, 1, 0x70];
    for length in 0..43 {
        assert_eq!(asks_for_second(&asking[..length]), None, "{length}");
        assert_eq!(asks_for_second(&[&warning[..], &asking[..length]].concat()), None, "{length}");
    }
    assert_eq!(asks_for_second(&asking[..43]), Some(true));
    assert_eq!(asks_for_second(&[&warning[..], &warning, &asking].concat()), Some(true));
    let mut other = asking;
    other[42] ^= 1;
    assert_eq!(asks_for_second(&other), Some(false));
    other[12] ^= 1;
    assert_eq!(asks_for_second(&other[..13]), Some(false), "decided as early as possible");
    assert_eq!(asks_for_second(&[0x15, 3, 3, 0, 2, 2, 0x28]), Some(false), "a fatal alert");
    assert_eq!(asks_for_second(b"HTTP/1.1 400 Bad Request\r\n"), Some(false));
    assert_eq!(asks_for_second(b"H"), Some(false));
}

#[test]
fn the_second_hello_must_be_for_the_same_name() {
    let (good, evil) = (hello_for("good.test"), hello_for("evil.test"));
    let change = [0x14, 3, 3, 0, 1, 1];
    let early = [&[0x17, 3, 3, 0x10, 0][..], &[9; 0x1000]].concat();
    for before in [&b""[..], &change, &[&change[..], &early, &early].concat()] {
        let with = |hello: &[u8]| [before, hello].concat();
        assert_eq!(second(&with(&good), "good.test"), Second::Same);
        assert_eq!(second(&with(&hello_for("GOOD.test")), "good.test"), Second::Same);
        assert_eq!(second(&with(&evil), "good.test"), Second::Other(Some("evil.test".into())));
        let whole = with(&good);
        for end in 0..whole.len() {
            match second(&whole[..end], "good.test") {
                Second::NeedMore(more) => assert!(more > end && more <= whole.len(), "{end} {more}"),
                other => panic!("{end}: {other:?}"),
            }
        }
    }
    let gives_up = [0x15, 3, 3, 0, 2, 2, 0x28];
    assert_eq!(second(&[&change[..], &gives_up].concat(), "good.test"), Second::Over);
    let warns = [0x15, 3, 3, 0, 2, 1, 0x5a];
    assert_eq!(second(&[&warns[..], &evil].concat(), "good.test"), Second::Other(Some("evil.test".into())));
    assert_eq!(second(b"GET / HTTP/1.1\r\n", "good.test"), Second::Malformed);
    let mut odd = evil;
    odd[1] = 2;
    assert_eq!(second(&odd, "good.test"), Second::Malformed);
}
