use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;

fn plain() -> Buffers {
    Buffers::new(&Arc::default(), &"one".into())
}

fn read_all(chunks: &[&[u8]]) -> Result<Vec<Envelope>, RpcError> {
    let mut found = Vec::new();
    read_each(chunks, |envelope| found.push(envelope)).map(|()| found)
}

fn read_each(chunks: &[&[u8]], mut take: impl FnMut(Envelope)) -> Result<(), RpcError> {
    let read = async {
        let mut reader = EnvelopeReader::new(plain(), MAX_MESSAGE);
        for chunk in chunks {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(envelope) = reader.next(&mut chunk).await? {
                take(envelope);
            }
            assert!(chunk.is_empty());
        }
        reader.finish()
    };
    read.now_or_never().expect("a budget for small messages does not wait")
}

#[test]
fn a_bomb_allocates_no_more_than_a_few_times_what_arrived() {
    let announced = |length: u32| [&[0][..], &length.to_be_bytes()].concat();
    let empty = announced(0).repeat(10_000);
    let sent = [announced(4 << 20), vec![b' '; 100_000]].concat();
    for (name, bytes) in [
        ("4 GiB announced", announced(u32::MAX)),
        ("4 MiB announced and none sent", announced(4 << 20)),
        ("4 MiB announced and a part sent", sent),
        ("empty messages", empty),
    ] {
        let mut read = Ok(());
        let peak = measure(|| read = read_each(&[&bytes], drop)).bytes_max;
        // A copy of the chunk, and a buffer that doubles.
        let limit = (4 * bytes.len() + 4096) as u64;
        assert!(peak <= limit, "{name}: {peak} bytes for {} ({read:?})", bytes.len());
    }
}

#[test]
fn hostile_envelopes_are_refused_before_their_content_arrives() {
    for (bytes, code) in [
        (&[0, 0xff, 0xff, 0xff, 0xff][..], Code::ResourceExhausted),
        (&[0, 0, 0x40, 0, 1], Code::ResourceExhausted),
        (&[1, 0, 0, 0, 2, b'{', b'}'], Code::Unimplemented),
        (&[3, 0, 0, 0, 2, b'{', b'}'], Code::Unimplemented),
        (&[4, 0, 0, 0, 2, b'{', b'}'], Code::InvalidArgument),
        (&[0x80, 0, 0, 0, 0], Code::InvalidArgument),
        (&[0, 0, 0, 0, 2, b'{'], Code::InvalidArgument),
        (&[0, 0, 0], Code::InvalidArgument),
    ] {
        assert_eq!(read_all(&[bytes]).map_err(|error| error.code), Err(code), "{bytes:?}");
    }
}

#[test]
fn the_last_envelope_has_the_error() {
    assert_eq!(&end_of_stream(None)[..], b"\x02\0\0\0\x02{}");
    let error = RpcError::new(Code::NotFound, "no such process");
    let bytes = end_of_stream(Some(&error));
    let json: serde_json::Value = serde_json::from_slice(&bytes[5..]).unwrap();
    assert_eq!(bytes[0], 2);
    assert_eq!(usize::from(bytes[4]), bytes.len() - 5);
    assert_eq!(json["error"]["code"], "not_found");
    assert_eq!(json["error"]["message"], "no such process");
}

#[test]
fn headers_are_read_strictly() {
    let read = |pairs: &[(&'static str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        call_options(&headers, CallKind::Stream)
    };
    let all = read(&[
        ("connect-protocol-version", "1"),
        ("connect-timeout-ms", "1500"),
        ("keepalive-ping-interval", "50"),
    ]);
    let expected =
        CallOptions { timeout: Some(Duration::from_millis(1500)), keepalive: Duration::from_secs(50) };
    assert_eq!(all, Ok(expected));
    assert_eq!(read(&[]).unwrap().keepalive, DEFAULT);
    assert_eq!(read(&[("keepalive-ping-interval", "0")]).unwrap().keepalive, DEFAULT);
    for text in ["", "-1", "+1", "1.5", "12345678901", "x"] {
        assert!(read(&[("connect-timeout-ms", text)]).is_err(), "{text}");
    }
    assert!(read(&[("connect-protocol-version", "2")]).is_err());
    let compressed = read(&[("connect-content-encoding", "gzip")]);
    assert_eq!(compressed.map_err(|error| error.code), Err(Code::Unimplemented));
}

const DEFAULT: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_single_message_is_exactly_one() {
    let one = message(b"{}");
    let two = [&one[..], &one[..]].concat();
    assert_eq!(single_message(Body::from(one.clone()), &plain(), 100).await.unwrap(), "{}");
    let with_end = [&one[..], &end_of_stream(None)[..]].concat();
    assert_eq!(single_message(Body::from(with_end), &plain(), 100).await.unwrap(), "{}");
    assert!(single_message(Body::from(two), &plain(), 100).await.is_err());
    assert!(single_message(Body::empty(), &plain(), 100).await.is_err());
    let large = Body::from(vec![b' '; MAX_MESSAGE + 1]);
    let refused = unary_message(large, &plain(), MAX_MESSAGE).await;
    assert_eq!(refused.map_err(|error| error.code), Err(Code::ResourceExhausted));
}

proptest! {
    #[test]
    fn envelopes_survive_any_split(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
        step in 1_usize..40,
    ) {
        let bytes = messages.iter().flat_map(|json| message(json)).collect::<Vec<u8>>();
        let chunks: Vec<&[u8]> = bytes.chunks(step).collect();
        let expected: Vec<_> = messages.into_iter().map(|json| Envelope::Message(json.into())).collect();
        prop_assert_eq!(read_all(&chunks), Ok(expected));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_all(&[&bytes]);
    }
}
