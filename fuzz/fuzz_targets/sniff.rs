//! Takes any bytes for the beginning of a connection out of a sandbox, whole and as they come. A name that is read differently when
//! the bytes come in another way, or that is not one as names are compared, is a find, and so is a wish for more that cannot end.

#![no_main]

use egress::proxy::{First, sniff};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = sniff(bytes);
    if let First::Tls { name: Some(name) } = &whole {
        assert_eq!(rules::plain_name(name).as_ref(), Some(name));
    }
    let mut have = 0;
    // Only as far as is asked for each time.
    let by_steps = loop {
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
    match by_steps {
        Some(first) => assert_eq!(first, whole),
        None => assert!(matches!(whole, First::NeedMore(_))),
    }
});
