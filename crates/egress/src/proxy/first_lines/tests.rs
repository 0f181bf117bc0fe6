use proptest::prelude::*;

use super::*;

/// Lines that some lenient server accepts as a request.
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

/// Lines that are requests because of the following lines. The last byte of each decides.
const BY_WHAT_FOLLOWS: [&[u8]; 18] = [
    b"GET foo?data=1\r\nHost:",
    b"GET foo\nhost :",
    b"GET foo\r\n\x0bHost:",
    // On a kept connection the next request could name another host.
    b"GET foo\r\nConnection:",
    b"GET foo\r\n\r\nGET / HTTP/",
    b"GET foo\r\nSET a b\r\nHost:",
    b"get  foo  bar\r\nHost:",
    b"GET *\r\nHost:",
    b"OPTIONS *\r\nHost:",
    b"OPTIONS *\nConnection:",
    b"POST *foo\r\nHost:",
    b"CONNECT evil.test:80\r\nHost:",
    // Arbitrary words.
    b"GET secret ANY\r\nHost:",
    b"POST secret ANY\r\nAccept: */*\r\nHOST:",
    b"POST secret ANY\r\nAccept: */*\rHost:",
    b"G(T secret ANY\nHost:",
    b"GET  \r\nHost:",
    b" / \r\nHost:",
];

/// First bytes of clients of other protocols, and the result of the check.
const OTHERS: [(&[u8], RequestCheck); 34] = [
    (b"SSH-2.0-OpenSSH_9.2p1\r\n", RequestCheck::NotARequest),
    (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", RequestCheck::Undecided),
    (b"003egit-upload-pack /http/project.git\0host=good.test\0", RequestCheck::Undecided),
    (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8\r\nHTTP/1.1\r\n", RequestCheck::NotARequest),
    (b"GET key\r\n", RequestCheck::Undecided),
    (b"get key\r\n", RequestCheck::Undecided),
    (b"EHLO good.test\r\n", RequestCheck::Undecided),
    (b"a1 LOGIN user password\r\n", RequestCheck::Undecided),
    (b"\0\0\0\x08\x04\xd2\x16\x2f", RequestCheck::Undecided),
    (b"\0\0\0\x37\0\x03\0\0user\0HTTP/web.good.test\0database\0http\0\0", RequestCheck::Undecided),
    (b"\x3a\x01\0\x01\x8d\xa6\xff\x19user\0", RequestCheck::Undecided),
    // Binds of LDAP, whose length is that of a blank.
    (b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00", RequestCheck::Undecided),
    (b"\x30\x20\x02\x01\x01\x60\x1b\x02\x01\x03\x04\x0bcn=service\x80\x08password", RequestCheck::Undecided),
    (b"AMQP\0\0\x09\x01", RequestCheck::Undecided),
    (b"\x10\x17\0\x04MQTT\x04\x02\0\x3c\0\x0bHTTP/1.1 xx", RequestCheck::Undecided),
    (b"( 2 ( edit-pipeline svndiff1 ) 31:svn://good.test/http/project ) ", RequestCheck::Undecided),
    (
        b"<?xml version='1.0'?><stream:stream xmlns:stream='http://etherx.jabber.org/streams'>",
        RequestCheck::Undecided,
    ),
    // Logs of a web server, sent to a collector.
    (b"<34>1 - host web - - - 192.0.2.1 \"GET / HTTP/1.1\" 200 12\n", RequestCheck::Undecided),
    (b"{\"version\":\"1.1\",\"short_message\":\"GET / HTTP/1.1\"}\0", RequestCheck::Undecided),
    (b"{\"message\":\"GET / HTTP/1.1\"}\n", RequestCheck::Undecided),
    (b"\x93\xa3web\xce\0\0\0\0\x81\xa7message\xd9\x20GET / HTTP/1.1 200", RequestCheck::Undecided),
    (b"GET key\r\nGET other\r\nSET key host:\r\n", RequestCheck::Undecided),
    (b"get one two\r\nset one 0 0 4\r\ndata\r\n", RequestCheck::Undecided),
    (b"KEYS *\r\nGET key\r\n", RequestCheck::Undecided),
    (b"EHLO good.test\r\nMAIL FROM:<user@good.test>\r\n", RequestCheck::Undecided),
    (b"NICK user\r\nUSER user 0 * :user\r\n", RequestCheck::Undecided),
    (b"CONNECT\naccept-version:1.2\nhost:good.test\n\n\0", RequestCheck::NotARequest),
    (b"REGISTER sip:good.test SIP/2.0\r\nVia: SIP/2.0/TCP host\r\n", RequestCheck::Undecided),
    (b"REGISTER sip:good.test SIP/2.0\r\nVia: SIP/2.0/TCP host\r\n\r\n", RequestCheck::NotARequest),
    (b"CHECK SPAMC/1.2\r\nContent-length: 5\r\n\r\n", RequestCheck::NotARequest),
    (b"CHECK SPAMC/1.2\n\nHost: good.test\r\n", RequestCheck::NotARequest),
    (b"web 200 1.5\nGET / HTTP/1.1 was asked\nweb 200 2.5\n", RequestCheck::Undecided),
    (b"CONNECT {\"verbose\":false}\r\n", RequestCheck::Undecided),
    (b"\r\n\r\n", RequestCheck::Undecided),
];

#[test]
fn lines_that_lenient_servers_accept_are_requests() {
    for line in REQUESTS {
        assert_eq!(FirstLine::default().read(line), RequestCheck::Request, "{}", line.escape_ascii());
    }
    let long = [&[b'A'; 65][..], b" / HTTP/1.1\r\n"].concat();
    assert_eq!(FirstLine::default().read(&long), RequestCheck::Request);
}

#[test]
fn a_line_without_a_version_is_decided_by_the_next_lines() {
    for begin in BY_WHAT_FOLLOWS {
        let (before, last) = begin.split_at(begin.len() - 1);
        let mut first = FirstLine::default();
        assert_eq!(first.read(before), RequestCheck::Undecided, "{}", begin.escape_ascii());
        assert_eq!(first.read(last), RequestCheck::Request, "{}", begin.escape_ascii());
    }
}

#[test]
fn a_request_is_detected_before_its_line_ends() {
    for line in REQUESTS {
        let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).unwrap() + 1;
        let mut first = FirstLine::default();
        let before = first.read(&line[..end]);
        assert!(before != RequestCheck::NotARequest, "{}", line.escape_ascii());
        assert_eq!(first.read(&line[end..]), RequestCheck::Request, "{}", line.escape_ascii());
    }
}

#[test]
fn other_protocols_are_no_requests() {
    for (begin, expected) in OTHERS {
        assert_eq!(FirstLine::default().read(begin), expected, "{}", begin.escape_ascii());
    }
    assert_eq!(FirstLine::default().read(&vec![b'a'; BYTES_MAX - 1]), RequestCheck::Undecided);
    assert_eq!(FirstLine::default().read(&vec![b'a'; BYTES_MAX]), RequestCheck::NotARequest);
}

proptest! {
    /// The result is independent of the chunks.
    #[test]
    fn the_verdict_does_not_depend_on_chunks(
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
