//! Takes any bytes for the body, the query and the headers of a request, as a client, who may be hostile, sends them. What was read as a
//! body has to be JSON to another reader too, and what was refused has to be said in a short, printable message. Anything but a
//! value or a refusal is a find.

#![no_main]

use libfuzzer_sys::fuzz_target;
use api::{CommandBody, CreateBody, CreateNetwork, EventsBody, ExposeBody, SignalBody, TerminalBody, TokenBody};
use reader::{Refusal, RequestBody};

fuzz_target!(|bytes: &[u8]| {
    let made = CreateBody::read(bytes, &Default::default());
    let ordered = CommandBody::read(bytes, &Default::default());
    let posted = EventsBody::read(bytes, &());
    if made.is_ok() || ordered.is_ok() || posted.is_ok() {
        // It keeps numbers in floats, which cannot hold all.
        if let Err(error) = serde_json::from_slice::<serde_json::Value>(bytes) {
            assert!(error.to_string().contains("number out of range"), "{error}");
        }
    }
    said(made.err());
    said(ordered.err());
    said(posted.err());
    said(CreateNetwork::read(bytes, &Default::default()).err());
    said(TerminalBody::read(bytes, &Default::default()).err());
    said(SignalBody::read(bytes, &()).err());
    said(ExposeBody::read(bytes, &()).err());
    said(TokenBody::read(bytes, &()).err());
    said(reader::json_content([bytes], []).err());
    said(reader::json_content([&b"application/json"[..]], [bytes]).err());
    reader::wants_stream([bytes]);
    if let Ok(text) = std::str::from_utf8(bytes) {
        said(reader::list(Some(text)).err());
        said(reader::events(Some(text)).err());
        said(reader::images(Some(text)).err());
        reader::path_segment(text);
        said(reader::execution_query(Some(text)).err());
        said(reader::place(text, "after").err());
    }
});

fn said(refusal: Option<Refusal>) {
    let Some(refusal) = refusal else { return };
    let message = refusal.to_string();
    assert!(message.len() < 2000 && !message.contains(char::is_control), "{message:?}");
}
