//! Takes any bytes for what the host sends to the agent: cuts them into frames as a link does, decodes each, and writes what
//! was a message again, which must give the same message. Anything but a value or an error is a find.

#![no_main]

use guest_proto::{PREFIX, decode_to_guest, encode_to_guest, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The bytes as one body, so that a find needs no right length in front.
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
    encode_to_guest(&message, &mut frame).expect("what was taken may be sent"); // a failure is what the fuzzer looks for
    assert_eq!(split(&frame), Ok(Some(frame.len())));
    assert_eq!(decode_to_guest(&frame[PREFIX..]).as_ref(), Ok(&message));
}
