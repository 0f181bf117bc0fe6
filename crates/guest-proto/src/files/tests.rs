use proptest::prelude::*;

use super::*;
use crate::{ToGuest, decode_to_guest, encode_to_guest};

fn stat(target: Option<&[u8]>) -> FileStat<'_> {
    FileStat { kind: FileKind::File, mode: 0o644, size: 7, modified_ns: -1, inode: 9, target }
}

fn round_trip(reply: &FileReply<'_>) {
    let mut out = vec![1, 2, 3];
    encode_reply(reply, &mut out).unwrap();
    let end = split_reply(&out[3..]).unwrap().unwrap();
    assert_eq!(end, out.len() - 3);
    assert_eq!(split_reply(&out[3..out.len() - 1]).unwrap(), None);
    assert_eq!(&decode_reply(&out[3 + PREFIX..]).unwrap(), reply);
}

proptest! {
    #[test]
    fn replies_round_trip(
        name in prop::collection::vec(1..=255u8, 1..=255), target in prop::collection::vec(any::<u8>(), 0..=4095),
        n: u64, text in "\\PC{0,100}", length: Option<u64>,
    ) {
        let name: Vec<u8> = name.into_iter().map(|byte| if byte == b'/' || byte == b'.' { b'x' } else { byte }).collect();
        round_trip(&FileReply::Stat(stat(Some(&target))));
        round_trip(&FileReply::Entry { name: &name, stat: stat(None) });
        round_trip(&FileReply::Listed { total: n });
        round_trip(&FileReply::Content { stat: stat(None), offset: n, length });
        round_trip(&FileReply::Packing);
        round_trip(&FileReply::Working);
        round_trip(&FileReply::Done(Tally { files: n, bytes: n, ..Tally::default() }));
        round_trip(&FileReply::Failed { kind: FileErrorKind::DiskFull, message: &text });
    }

    #[test]
    fn any_bytes_decode_to_a_reply_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = split_reply(&bytes);
        if let Ok(reply) = decode_reply(&bytes) {
            let mut out = Vec::new();
            encode_reply(&reply, &mut out).unwrap();
        }
    }

    #[test]
    fn requests_round_trip(op: u64, path in prop::collection::vec(1..=255u8, 0..100), n: u64, mode in 0..=MODE_BITS, yes: bool) {
        let path = [b"/".as_slice(), &path].concat();
        let path = path.as_slice();
        for request in [
            FileRequest::Read { path, offset: n, from_end: yes, length: yes.then_some(n) },
            FileRequest::Stat { path, follow: yes },
            FileRequest::List { path, offset: n, limit: 1 + (n % 1000) as u32 },
            FileRequest::Write { path, mode: yes.then_some(mode), parents: yes },
            FileRequest::MakeDir { path, mode: Some(mode), recursive: yes },
            FileRequest::Delete { path, recursive: yes },
            FileRequest::Move { from: path, to: path, overwrite: yes },
            FileRequest::Pack { path },
            FileRequest::Unpack { path },
        ] {
            let message = ToGuest::File { op, request, window: 9 };
            let mut out = Vec::new();
            encode_to_guest(&message, &mut out).unwrap();
            assert_eq!(decode_to_guest(&out[PREFIX..]).unwrap(), message);
        }
    }
}

proptest! {
    #[test]
    fn requests_of_users_round_trip(
        op: u64, path in prop::collection::vec(1..=255u8, 0..100), user in "[^\0]{1,60}", n in 1..=u32::MAX, yes: bool,
        pairs in prop::collection::vec(("[^\0]{1,40}", "\\PC{0,40}"), 0..8), prefix in "[^\0]{0,20}",
    ) {
        let path = path.as_slice();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let attributes = || Attributes { prefix: &prefix, pairs: pairs.clone() };
        for request in [
            FileRequest::Describe { path, attributes: yes.then_some(prefix.as_str()) },
            FileRequest::ListTree { path, depth: n, attributes: yes.then_some(prefix.as_str()) },
            FileRequest::WriteInPlace { path, attributes: yes.then(attributes) },
            FileRequest::MakeDirs { path },
            FileRequest::Rename { from: path, to: path },
            FileRequest::SetAttributes { path, attributes: attributes() },
            FileRequest::Watch { path, recursive: yes },
            FileRequest::CreateUser { name: "user", uid: n },
            FileRequest::Sync,
        ] {
            let message = ToGuest::FileAs { op, user: &user, request, window: 9 };
            let mut out = Vec::new();
            encode_to_guest(&message, &mut out).unwrap();
            assert_eq!(decode_to_guest(&out[PREFIX..]).unwrap(), message);
        }
        let stat = stat(Some(path));
        let link = yes.then_some(crate::LinkTarget { path, kind: FileKind::Directory, mode: 0o755 });
        round_trip(&FileReply::Details(FileDetails {
            path, stat, uid: n, gid: n, owner: &user, group: "g", link, attributes: pairs.clone(),
        }));
        for kind in [
            WatchEventKind::Create, WatchEventKind::Write, WatchEventKind::Remove, WatchEventKind::Rename,
            WatchEventKind::Chmod,
        ] {
            round_trip(&FileReply::Changed { kind, name: path });
        }
        for reply in [FileReply::Watching, FileReply::Overflow, FileReply::Synced] {
            round_trip(&reply);
        }
        round_trip(&FileReply::Failed { kind: FileErrorKind::UserMissing, message: &prefix });
    }
}

#[test]
fn the_largest_details_fit_into_a_reply() {
    let path = [b'x'; MAX_PATH];
    let name = "x".repeat(crate::MAX_USER);
    let value = "x".repeat(crate::MAX_ATTRIBUTE_BYTES - 1);
    round_trip(&FileReply::Details(FileDetails {
        path: &path,
        stat: stat(Some(&path)),
        uid: u32::MAX,
        gid: u32::MAX,
        owner: &name,
        group: &name,
        link: Some(crate::LinkTarget { path: &path, kind: FileKind::File, mode: MODE_BITS }),
        attributes: vec![("a", &value)],
    }));
}

#[test]
fn invalid_requests_of_users_are_refused() {
    let refused = |user: &str, request| {
        encode_to_guest(&ToGuest::FileAs { op: 1, user, request, window: 1 }, &mut Vec::new()).is_err()
    };
    let path = b"a".as_slice();
    assert!(refused("", FileRequest::MakeDirs { path }));
    assert!(refused(&"x".repeat(crate::MAX_USER + 1), FileRequest::MakeDirs { path }));
    assert!(refused("u", FileRequest::MakeDirs { path: b"a\0" }));
    assert!(refused("u", FileRequest::ListTree { path, depth: 0, attributes: None }));
    let many = vec![("a", ""); crate::MAX_ATTRIBUTES + 1];
    let large = "x".repeat(crate::MAX_ATTRIBUTE_BYTES);
    for pairs in [many, vec![("a", large.as_str())], vec![("", "x")]] {
        assert!(refused(
            "u",
            FileRequest::SetAttributes { path, attributes: Attributes { prefix: "p.", pairs } }
        ));
    }
    for (name, uid) in [("user", 0), ("a:b", 1), ("a\nb", 1), ("a/b", 1)] {
        assert!(refused("root", FileRequest::CreateUser { name, uid }), "{name} {uid}");
    }
    // Without a user, paths are absolute.
    let message = ToGuest::File { op: 1, request: FileRequest::MakeDirs { path }, window: 1 };
    assert!(encode_to_guest(&message, &mut Vec::new()).is_err());
}

#[test]
fn invalid_paths_names_and_replies_are_refused() {
    let refused =
        |request| encode_to_guest(&ToGuest::File { op: 1, request, window: 1 }, &mut Vec::new()).is_err();
    let long = [b"/".as_slice(), &[b'x'; MAX_PATH]].concat();
    for path in [b"".as_slice(), b"relative", b"/nul\0", &long] {
        assert!(refused(FileRequest::Stat { path, follow: true }), "{path:?}");
        assert!(refused(FileRequest::Move { from: b"/a", to: path, overwrite: true }), "{path:?}");
    }
    assert!(refused(FileRequest::List { path: b"/", offset: 0, limit: 0 }));
    assert!(refused(FileRequest::List { path: b"/", offset: 0, limit: MAX_ENTRIES + 1 }));
    assert!(refused(FileRequest::Write { path: b"/a", mode: Some(0o10000), parents: false }));
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
        let reply = FileReply::Entry { name, stat: stat(None) };
        assert!(encode_reply(&reply, &mut Vec::new()).is_err(), "{name:?}");
        let bytes = postcard::to_allocvec(&reply).unwrap();
        assert!(decode_reply(&bytes).is_err(), "{name:?}");
    }
    let target = [b'x'; MAX_PATH + 1];
    let bytes = postcard::to_allocvec(&FileReply::Stat(stat(Some(&target)))).unwrap();
    assert!(decode_reply(&bytes).is_err());
    assert!(matches!(split_reply(&[0xff; 4]), Err(ProtoError::TooLong { .. })));
    let mut trailing = postcard::to_allocvec(&FileReply::Packing).unwrap();
    trailing.push(0);
    assert!(matches!(decode_reply(&trailing), Err(ProtoError::Trailing { .. })));
}
