//! Parses arbitrary bytes as frames from the host to the agent: splits them as a link does and decodes each frame. A decoded
//! message must be the same after encoding and decoding it again.

#![no_main]

use guest_proto::{PREFIX, decode_to_guest, encode_to_guest, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The bytes as one body, so that an input needs no valid length prefix.
    check(bytes);
    // The bytes as a stream.
    let mut rest = bytes;
    while let Ok(Some(end)) = split(rest) {
        check(&rest[PREFIX..end]);
        rest = &rest[end..];
    }
});

fn check(body: &[u8]) {
    let Ok(message) = decode_to_guest(body) else { return };
    let mut frame = Vec::new();
    encode_to_guest(&message, &mut frame).expect("a decoded message can be encoded"); // a failure is what the fuzzer looks for
    assert_eq!(split(&frame), Ok(Some(frame.len())));
    assert_eq!(decode_to_guest(&frame[PREFIX..]).as_ref(), Ok(&message));
}
