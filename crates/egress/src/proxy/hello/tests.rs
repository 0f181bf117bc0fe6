//! Hand-made hellos and those of rustls, whose parser is the reference.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

fn counted(length: usize, content: &[u8]) -> Vec<u8> {
    let mut bytes = content.len().to_be_bytes()[size_of::<usize>() - length..].to_vec();
    bytes.extend_from_slice(content);
    bytes
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &counted(2, content)].concat()
}

fn name_list(names: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> =
        names.iter().flat_map(|name| [&[HOST_NAME][..], &counted(2, name)].concat()).collect();
    extension(SERVER_NAME, &counted(2, &list))
}

fn with_extensions(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![3, 1];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0, 47, 1, 0]);
    body.extend(extensions.map(|all| counted(2, all)).unwrap_or_default());
    body
}

fn message_of(body: &[u8]) -> Vec<u8> {
    [&[CLIENT_HELLO][..], &counted(3, body)].concat()
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &counted(2, part)].concat()).collect()
}

fn by_hand(extensions: &[u8]) -> Vec<u8> {
    records(&message_of(&with_extensions(Some(extensions))), 16_000)
}

fn by_rustls(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    hello
}

fn named(name: &[u8]) -> Hello<'_> {
    Hello::Named(Cow::Borrowed(name))
}

#[test]
fn names_are_those_that_rustls_finds() {
    for name in ["good.test", "xn--bcher-kva.example", "a_b.example.com", "203.0.113.7"] {
        let bytes = by_rustls(name);
        let mut acceptor = Acceptor::default();
        acceptor.read_tls(&mut &bytes[..]).unwrap();
        let accepted = acceptor.accept().map_err(|(error, _)| error).unwrap().unwrap();
        let theirs = accepted.client_hello().server_name().map(str::to_owned);
        let ours = match hello(&bytes) {
            Hello::Named(name) => Some(String::from_utf8(name.into_owned()).unwrap()),
            Hello::Unnamed => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(ours, theirs, "{name}");
        assert_eq!(ours.is_some(), name != "203.0.113.7");
    }
}

#[test]
fn truncated_hellos_need_more_bytes() {
    let message = &by_rustls("good.test")[5..];
    for size in [1, 2, 3, 4, 5, 64, message.len() - 1, message.len()] {
        let bytes = records(message, size);
        for end in 0..bytes.len() {
            match hello(&bytes[..end]) {
                Hello::NeedMore(wanted) => {
                    assert!(wanted > end && wanted <= bytes.len(), "{size} {end} {wanted}");
                }
                other => panic!("{size} {end}: {other:?}"),
            }
        }
        assert_eq!(hello(&bytes), named(b"good.test"), "{size}");
        // Data after the hello is not examined.
        let more = [&bytes[..], &[23, 3, 3, 0, 1, 0]].concat();
        assert_eq!(hello(&more), named(b"good.test"));
        assert_eq!(hello_bytes(&more), bytes.len());
    }
}

#[test]
fn a_hello_in_many_records_is_parsed_few_times() {
    let message = &by_rustls("good.test")[5..];
    let bytes = records(message, 1);
    let (mut have, mut steps) = (0, 0);
    while let Hello::NeedMore(wanted) = hello(&bytes[..have]) {
        have = wanted;
        steps += 1;
    }
    assert!(steps < 60, "{steps}");
}

#[test]
fn unusual_valid_hellos_are_accepted() {
    // Only a name, as before TLS 1.2, and without extensions.
    assert_eq!(hello(&by_hand(&name_list(&[b"old.test"]))), named(b"old.test"));
    assert_eq!(hello(&records(&message_of(&with_extensions(None)), 9999)), Hello::Unnamed);
    assert_eq!(hello(&by_hand(&[])), Hello::Unnamed);
    // GREASE, post-quantum keys, and an encrypted hello whose outer name counts.
    let around = [
        extension(0x0a0a, &[]),
        extension(51, &[7; 12_000]),
        name_list(&[b"outer.test"]),
        extension(0xfe0d, &[0; 300]),
        extension(0xfafa, &[0]),
    ];
    assert_eq!(hello(&by_hand(&around.concat())), named(b"outer.test"));
}

#[test]
fn ambiguous_hellos_are_refused() {
    let twice = [name_list(&[b"good.test"]), name_list(&[b"evil.test"])].concat();
    let no_list = extension(SERVER_NAME, &[]);
    let other_kind = extension(SERVER_NAME, &counted(2, &[1, 0, 1, b'x']));
    let trailing = extension(SERVER_NAME, &[0, 4, 0, 0, 1, b'x', 0]);
    let too_short = [0, 0, 0, 9, 0];
    for extensions in [
        &twice[..],
        &name_list(&[b"good.test", b"evil.test"]),
        &name_list(&[]),
        &no_list,
        &other_kind,
        &trailing,
        &too_short,
    ] {
        assert_eq!(hello(&by_hand(extensions)), Hello::Malformed, "{extensions:?}");
    }
    let good = message_of(&with_extensions(Some(&name_list(&[b"good.test"]))));
    let longer = [&good[..], &[0]].concat();
    assert_eq!(hello(&records(&longer, 9999)), Hello::Malformed, "something follows in the record");
    let mut other = good.clone();
    other[0] = 2;
    assert_eq!(hello(&records(&other, 9999)), Hello::Malformed, "a hello of a server");
    let empty = [&[22, 3, 1, 0, 0][..], &records(&good, 9999)].concat();
    assert_eq!(hello(&empty), Hello::Malformed, "an empty record");
    let mut between = records(&good, 30);
    between[35] = 23;
    assert_eq!(hello(&between), Hello::Malformed, "another kind of record in between");
    assert_eq!(hello(&[22, 3, 1, 0xff, 0xff, 1]), Hello::Malformed, "a record that is too long");
}
