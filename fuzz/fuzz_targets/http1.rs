//! Sends any bytes as an HTTP/1 connection to hyper, once alone and once behind the checks of `listen`. Both must see the same
//! requests with the same bodies until the checks refuse one, and behind the checks hyper must never answer on its own. The first
//! byte chooses how the bytes are cut into pieces.

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
