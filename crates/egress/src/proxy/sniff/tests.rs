use proptest::prelude::*;

use super::*;

#[test]
fn first_bytes_identify_the_protocol() {
    use First::{H2c, Http, Malformed, Other};
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], Http),
        (b"\r\n\nGET / HTTP/1.1\n", Http),
        (b" GET / HTTP/1.1\n", Http),
        (b"get\t/ http/1.1\r\n", Http),
        (b"M-SEARCH * HTTP/1.1\r\n", Http),
        (b"GET http://good.test/ HTTP/1.0\r\n", Http),
        (b"CONNECT good.test:443 HTTP/1.1\r\n", Http),
        (b"GET /old\r\n", Http),
        (b"GET HTTP://good.test\r\n", Http),
        // nginx goes by the host of any address.
        (b"GET ws://evil.test/secret\r\n", Http),
        (b"GET a1+b://evil.test\n", Http),
        // Node reads these as it does HTTP.
        (b"GET * RTSP/1.0\r\n", Http),
        (b"OPTIONS *  RTSP/1.0\r\n", Http),
        (b"GET rtsp://evil.test/x RTSP/1.0\r\n", Http),
        (b"OPTIONS rtsp://good.test/ RTSP/1.0\r\n", Http),
        (b"SOURCE * ICE/1.0\r\n", Http),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", H2c),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0", H2c),
        (b"PRI * HTTP/2.0\r\n\r\nXX", Http),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", Malformed),
        (b"\r\n\r\n\0\r\nQUIT\n", Malformed),
        (b"PROXYING\r\n", Other),
        (b"EHLO good.test\r\n", Other),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Other),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", Other),
        (b"PING\r\n", Other),
        (b"*3\r\n$3\r\nSET\r\n", Other),
        (b"GET key\r\n", Other),
        (b"0032git-upload-pack /project.git\0host=good.test\0", Other),
        (b"KEYS *\r\n", Other),
        (b"GET foo?data=1\r\n", Other),
        (b"USER service/device\r\n", Other),
        (b"REGISTER sip:good.test SIP/2.0\r\n", Other),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", Other),
        (b"@RSYNCD: 31.0\n", Other),
        (b"<?xml version='1.0'?>", Other),
        // Records of TLS that a server drops, or reads although their version is none.
        (b"\x15\x03\x01\x00\x02\x01\x5a", Malformed),
        (b"\x14\x03\x03\x00\x01\x01", Malformed),
        (b"\x16\x02\x01\x00\xf0\x01", Malformed),
        (b"\x16\x00\x00\x00\x04\x01", Malformed),
        (b"\x15\x01\x00\x00\x02\x01", Malformed),
        // Logins of MySQL and greetings of MongoDB, which begin with their length.
        (b"\x16\x01\x00\x01\x85\xa6\xff\x01", Other),
        (b"\x15\x01\x00\x01", Other),
        (b"\x16\x01\x00\x00\x07\x00\x00\x00", Other),
        (b"\x15\x02\x00\x00\x02\x00", Other),
        (b"\x14\x01\x00\x01", Other),
        (b"\x14\x03\x00\x01\x85\xa6", Other),
        (b"\x15\x03\x00\x00\x02\x00", Other),
        (b"\x17\x03\x00\x00", Other),
        (b"\x16\x10", Other),
        (b"\x80\x2e\x01\x03\x01", First::Tls { name: None }),
        (b"\x80\x2e\x01\x00\x02", First::Tls { name: None }),
        (b"\x81\x00\x00", Other),
        (b"\x16\x03\x01\x00\x05\x02", Malformed),
    ] {
        assert_eq!(sniff(bytes), expected, "{}", bytes.escape_ascii());
    }
    for bytes in [
        &b""[..],
        b"G",
        b"GET ",
        b"GET / HTT",
        b"\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"\x16",
        b"\x16\x03",
        b"\x15",
        b"\x16\x02",
        b"\x16\x02\x01\x00\xf0",
        b"\x15\x02\x01\x00\x02",
        b"SSH-2",
        b"PROXY",
    ] {
        assert!(
            matches!(sniff(bytes), First::NeedMore(more) if more > bytes.len()),
            "{}",
            bytes.escape_ascii()
        );
    }
    assert_eq!(sniff(&[b'\n'; 300]), Malformed);
    assert_eq!(sniff(&[b'a'; 100]), Other);
    assert_eq!(sniff(&[&b"GET "[..], &[b'a'; 9000]].concat()), Http);
}

#[test]
fn the_end_of_the_data_decides() {
    for (bytes, expected) in [
        (&b"PING"[..], First::Other),
        (b"say hello", First::Other),
        (b"GET / HTTP/1.1", First::Http),
        (b"GET /", First::Http),
        (b"\x16\x03\x01", First::Malformed),
        (b"\x16", First::Malformed),
        (b"\x15", First::Malformed),
        (b"\x16\x02\x01", First::Other),
    ] {
        assert_eq!(sniff_ended(bytes), expected, "{}", bytes.escape_ascii());
    }
}

proptest! {
    /// What is known does not change by what follows, and what is asked for is more than there is.
    #[test]
    fn further_bytes_do_not_change_the_protocol(
        begin in prop::sample::select(vec![
            &b""[..], b"GET / HTTP/1.1\r\n", b"GET / ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03",
            b"\x15", b"\x16\x02\x01", b"\x15\x02\x01\x00",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [begin, &rest].concat();
        let mut decided = None;
        for end in 0..=bytes.len() {
            match (sniff(&bytes[..end]), &decided) {
                (First::NeedMore(more), None) => prop_assert!(more > end),
                (first, None) => decided = Some(first),
                (first, Some(before)) => prop_assert_eq!(&first, before),
            }
        }
    }
}
