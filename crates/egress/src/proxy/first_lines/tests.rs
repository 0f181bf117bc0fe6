use proptest::prelude::*;

use super::*;

/// Lines that one lenient server or another takes for a request, and a strict reader for nothing.
const REQUESTS: [&[u8]; 23] = [
    b"GET /\x01 HTTP/1.1\r\n",
    b"GET /\0 HTTP/1.1\r\n",
    b"GET\x0b/ HTTP/1.1\r\n",
    b"GET\x0c/\x0chttp/1.1\n",
    b"GET\r/ HTTP/1.1\r\n",
    b"GET\x1c/\x1dHTTP/1.1\n",
    b"GET\xa0/\x85HTTP/1.1\r\n",
    b"GET /\x01 HTTP/1.1 and more\r\n",
    b"GET\x0b/\r\n",
    b"GET\x0belsewhere\r\n",
    b"get /\r\n",
    b"\x0bGET / HTTP/1.1\r\n",
    b"\r\n\x1fGET / HTTP/1.1\r\n",
    b"\xa0GET / HTTP/1.1\r\n",
    b"\x01GET / HTTP/1.1\r\n",
    b"G(T / HTTP/1.1\r\n",
    b"G\0T / HTTP/1.1\r\n",
    b"\xef\xbb\xbfGET / HTTP/1.1\r\n",
    b"GET\x01 / HTTP/1.1\n",
    b"/ / HTTP/1.0\r",
    b"GET *\x01 RTSP/1.0\r\n",
    b"SOURCE\x0b* ICE/1.0\r\n",
    b"G(T * rtsp/1.0\r\n",
];

/// Lines that are a request, or one of another protocol, by what follows. Each is one by its last colon or version.
const BY_WHAT_FOLLOWS: [&[u8]; 18] = [
    b"GET foo?data=1\r\nHost:",
    b"GET foo\nhost :",
    b"GET foo\r\n\x0bHost:",
    // Kept open, it would be asked for another host when the first answer has come.
    b"GET foo\r\nConnection:",
    b"GET foo\r\n\r\nGET / HTTP/",
    b"GET foo\r\nSET a b\r\nHost:",
    b"get  foo  bar\r\nHost:",
    b"GET *\r\nHost:",
    b"OPTIONS *\r\nHost:",
    b"OPTIONS *\nConnection:",
    b"POST *foo\r\nHost:",
    b"CONNECT evil.test:80\r\nHost:",
    // Of any words at all.
    b"GET secret ANY\r\nHost:",
    b"POST secret ANY\r\nAccept: */*\r\nHOST:",
    b"POST secret ANY\r\nAccept: */*\rHost:",
    b"G(T secret ANY\nHost:",
    b"GET  \r\nHost:",
    b" / \r\nHost:",
];

/// What honest clients of other protocols say first, and for how long it has to be watched.
const OTHERS: [(&[u8], Seen); 34] = [
    (b"SSH-2.0-OpenSSH_9.2p1\r\n", Seen::Over),
    (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Seen::SoFar),
    (b"003egit-upload-pack /http/project.git\0host=good.test\0", Seen::SoFar),
    (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8\r\nHTTP/1.1\r\n", Seen::Over),
    (b"GET key\r\n", Seen::SoFar),
    (b"get key\r\n", Seen::SoFar),
    (b"EHLO good.test\r\n", Seen::SoFar),
    (b"a1 LOGIN user password\r\n", Seen::SoFar),
    (b"\0\0\0\x08\x04\xd2\x16\x2f", Seen::SoFar),
    (b"\0\0\0\x37\0\x03\0\0user\0HTTP/web.good.test\0database\0http\0\0", Seen::SoFar),
    (b"\x3a\x01\0\x01\x8d\xa6\xff\x19user\0", Seen::SoFar),
    // Binds of LDAP, whose length is that of a blank.
    (b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00", Seen::SoFar),
    (b"\x30\x20\x02\x01\x01\x60\x1b\x02\x01\x03\x04\x0bcn=service\x80\x08password", Seen::SoFar),
    (b"AMQP\0\0\x09\x01", Seen::SoFar),
    (b"\x10\x17\0\x04MQTT\x04\x02\0\x3c\0\x0bHTTP/1.1 xx", Seen::SoFar),
    (b"( 2 ( edit-pipeline svndiff1 ) 31:svn://good.test/http/project ) ", Seen::SoFar),
    (b"<?xml version='1.0'?><stream:stream xmlns:stream='http://etherx.jabber.org/streams'>", Seen::SoFar),
    // Logs of a web server on their way to a collector.
    (b"<34>1 - host web - - - 192.0.2.1 \"GET / HTTP/1.1\" 200 12\n", Seen::SoFar),
    (b"{\"version\":\"1.1\",\"short_message\":\"GET / HTTP/1.1\"}\0", Seen::SoFar),
    (b"{\"message\":\"GET / HTTP/1.1\"}\n", Seen::SoFar),
    (b"\x93\xa3web\xce\0\0\0\0\x81\xa7message\xd9\x20GET / HTTP/1.1 200", Seen::SoFar),
    (b"GET key\r\nGET other\r\nSET key host:\r\n", Seen::SoFar),
    (b"get one two\r\nset one 0 0 4\r\ndata\r\n", Seen::SoFar),
    (b"KEYS *\r\nGET key\r\n", Seen::SoFar),
    (b"EHLO good.test\r\nMAIL FROM:<user@good.test>\r\n", Seen::SoFar),
    (b"NICK user\r\nUSER user 0 * :user\r\n", Seen::SoFar),
    (b"CONNECT\naccept-version:1.2\nhost:good.test\n\n\0", Seen::Over),
    (b"REGISTER sip:good.test SIP/2.0\r\nVia: SIP/2.0/TCP host\r\n", Seen::SoFar),
    (b"REGISTER sip:good.test SIP/2.0\r\nVia: SIP/2.0/TCP host\r\n\r\n", Seen::Over),
    (b"CHECK SPAMC/1.2\r\nContent-length: 5\r\n\r\n", Seen::Over),
    (b"CHECK SPAMC/1.2\n\nHost: good.test\r\n", Seen::Over),
    (b"web 200 1.5\nGET / HTTP/1.1 was asked\nweb 200 2.5\n", Seen::SoFar),
    (b"CONNECT {\"verbose\":false}\r\n", Seen::SoFar),
    (b"\r\n\r\n", Seen::SoFar),
];

#[test]
fn what_a_lenient_server_takes_for_a_request() {
    for line in REQUESTS {
        assert_eq!(FirstLine::default().read(line), Seen::Request, "{}", line.escape_ascii());
    }
    let long = [&[b'A'; 65][..], b" / HTTP/1.1\r\n"].concat();
    assert_eq!(FirstLine::default().read(&long), Seen::Request);
}

#[test]
fn what_follows_a_line_without_a_version_tells_what_it_was() {
    for begin in BY_WHAT_FOLLOWS {
        let (before, last) = begin.split_at(begin.len() - 1);
        let mut first = FirstLine::default();
        assert_eq!(first.read(before), Seen::SoFar, "{}", begin.escape_ascii());
        assert_eq!(first.read(last), Seen::Request, "{}", begin.escape_ascii());
    }
}

#[test]
fn it_is_known_before_the_line_ends() {
    for line in REQUESTS {
        let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).unwrap() + 1;
        let mut first = FirstLine::default();
        let before = first.read(&line[..end]);
        assert!(before != Seen::Over, "{}", line.escape_ascii());
        assert_eq!(first.read(&line[end..]), Seen::Request, "{}", line.escape_ascii());
    }
}

#[test]
fn what_other_protocols_begin_with_is_none() {
    for (begin, expected) in OTHERS {
        assert_eq!(FirstLine::default().read(begin), expected, "{}", begin.escape_ascii());
    }
    assert_eq!(FirstLine::default().read(&vec![b'a'; BYTES_MAX - 1]), Seen::SoFar);
    assert_eq!(FirstLine::default().read(&vec![b'a'; BYTES_MAX]), Seen::Over);
}

proptest! {
    /// However it comes in pieces, the verdict is the same.
    #[test]
    fn pieces_change_nothing(
        begin in prop::sample::select([&REQUESTS[..], &BY_WHAT_FOLLOWS, &OTHERS.map(|(begin, _)| begin)].concat()),
        more in prop::collection::vec(any::<u8>(), 0..40),
        size in 1..20_usize,
    ) {
        let bytes = [begin, &more].concat();
        let mut pieces = FirstLine::default();
        for piece in bytes.chunks(size) {
            pieces.read(piece);
        }
        prop_assert_eq!(pieces.read(b""), FirstLine::default().read(&bytes));
    }
}
