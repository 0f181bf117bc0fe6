//! Parses arbitrary bytes as the body, the query and the headers of a request of a client, which may be hostile. A body that is
//! accepted must be valid JSON for serde_json, too. A refusal must have a short, printable message. No parser may take more memory
//! than a few times the bytes, also serde_json for a body whose shape was checked.

#![no_main]

use allocation_counter::measure;
use api::{
    CommandBody, CreateBody, CreateNetwork, EventsBody, ExposeBody, SignalBody, TerminalBody, TokenBody,
};
use libfuzzer_sys::fuzz_target;
use reader::{RequestBody, RequestRefusal};

/// The bounds of `crates/reader/tests/bombs.rs`: what parsers hold in addition to twice the body.
const ENTRIES_BYTES: usize = 6 << 20;
const VALUES_MAX: usize = 16_384;
const VALUES_BYTES: usize = VALUES_MAX * 200;

fuzz_target!(|bytes: &[u8]| {
    let peak = measure(|| parse(bytes)).bytes_max;
    assert!(peak <= (2 * bytes.len() + ENTRIES_BYTES) as u64, "{peak} bytes for {}", bytes.len());
    if reader::check_shape(bytes, VALUES_MAX).is_ok() {
        let peak = measure(|| drop(serde_json::from_slice::<serde_json::Value>(bytes))).bytes_max;
        assert!(peak <= (2 * bytes.len() + VALUES_BYTES) as u64, "{peak} bytes for {}", bytes.len());
    }
});

fn parse(bytes: &[u8]) {
    let create = CreateBody::read(bytes, &Default::default());
    let execution = CommandBody::read(bytes, &Default::default());
    let events = EventsBody::read(bytes, &());
    if create.is_ok() || execution.is_ok() || events.is_ok() {
        // serde_json::Value stores numbers as floats, whose range is limited.
        if let Err(error) = serde_json::from_slice::<serde_json::Value>(bytes) {
            assert!(error.to_string().contains("number out of range"), "{error}");
        }
    }
    check_refusal(create.err());
    check_refusal(execution.err());
    check_refusal(events.err());
    check_refusal(CreateNetwork::read(bytes, &Default::default()).err());
    check_refusal(TerminalBody::read(bytes, &Default::default()).err());
    check_refusal(SignalBody::read(bytes, &()).err());
    check_refusal(ExposeBody::read(bytes, &()).err());
    check_refusal(TokenBody::read(bytes, &()).err());
    check_refusal(reader::json_content([bytes], []).err());
    check_refusal(reader::json_content([&b"application/json"[..]], [bytes]).err());
    reader::wants_stream([bytes]);
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_refusal(reader::list(Some(text)).err());
        check_refusal(reader::events(Some(text)).err());
        check_refusal(reader::images(Some(text)).err());
        reader::path_segment(text);
        check_refusal(reader::execution_query(Some(text)).err());
        check_refusal(reader::place(text, "after").err());
    }
}

fn check_refusal(refusal: Option<RequestRefusal>) {
    let Some(refusal) = refusal else { return };
    let message = refusal.to_string();
    assert!(message.len() < 2000 && !message.contains(char::is_control), "{message:?}");
}
