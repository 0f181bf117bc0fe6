//! Parses arbitrary bytes as the first bytes of a connection out of a sandbox, once as a whole and once incrementally. Both must
//! give the same name, in its normal form, and the number of further bytes that the parser requests must be bounded.

#![no_main]

use egress::proxy::{First, sniff};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = sniff(bytes);
    if let First::Tls { name: Some(name) } = &whole {
        assert_eq!(rules::plain_name(name).as_ref(), Some(name));
    }
    let mut have = 0;
    // Each step has only the bytes that the parser requested.
    let incremental = loop {
        match sniff(&bytes[..have]) {
            First::NeedMore(wanted) => {
                assert!(wanted > have && wanted <= 64 * 1024);
                if wanted > bytes.len() {
                    break None;
                }
                have = wanted;
            }
            first => break Some(first),
        }
    };
    match incremental {
        Some(first) => assert_eq!(first, whole),
        None => assert!(matches!(whole, First::NeedMore(_))),
    }
});
