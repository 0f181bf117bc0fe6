//! Sends arbitrary bytes as an HTTP/1 connection to hyper, once directly and once through the head filter of `listen`. Both must see
//! the same requests with the same bodies until the filter refuses one, and behind the filter hyper must never send an error response.
//! The first byte determines the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let piece = match cut {
        0..64 => usize::from(cut) + 1,
        64..128 => usize::from(cut) * 16,
        _ => bytes.len(),
    };
    listen::differential::compare(bytes, piece);
});
