//! Bodies that would take a parser of values far more memory than they have bytes.

use allocation_counter::measure;
use api::{
    CommandBody, CreateBody, CreateNetwork, EventsBody, ExposeBody, SignalBody, TemplateBody, TerminalBody,
    TokenBody,
};
use reader::{RequestBody, RequestRefusal};

/// The largest bodies of endpoints: of creates, and of commands and templates.
const SMALL: usize = 1 << 20;
const LARGE: usize = 16 << 20;
/// What a parser may hold in addition to twice the body: 10,000 entries of a map or list at each level of the longest path.
const ENTRIES_BYTES: usize = 6 << 20;

fn bombs(bytes: usize) -> Vec<(&'static str, String)> {
    let times = |one: &str, around: &str| one.repeat((bytes - around.len()) / one.len());
    let list = |name: &str, one: &str| {
        let around = format!(r#"{{"{name}":[]}}"#);
        format!(r#"{{"{name}":[{}{one}]}}"#, times(&format!("{one},"), &around))
    };
    let names: String = (0..bytes / 14).map(|n| format!(r#""{n}":"","#)).collect();
    let map = |name: &str| format!(r#"{{"{name}":{{{names}"last":""}}}}"#);
    let text = |name: &str, one: &str| format!(r#"{{"{name}":"{}"}}"#, times(one, name));
    vec![
        ("nested lists", "[".repeat(bytes)),
        ("nested objects", r#"{"a":"#.repeat(bytes / 5)),
        ("a list", format!("[{}0]", times("0,", ""))),
        ("a list of objects", format!("[{}{{}}]", times("{},", ""))),
        ("an unknown list", list("unknown", "0")),
        ("an unknown map", map("unknown")),
        ("unknown names", format!(r#"{{{names}"image":"x"}}"#)),
        ("environment", map("env")),
        ("metadata", map("metadata")),
        ("ports", list("ports", "0")),
        ("arguments", map("args")),
        ("command", text("command", "x")),
        ("escapes", text("command", r"\u0041")),
        ("stdin", text("stdin", r"\ud83d\ude00")),
        ("Dockerfile", text("dockerfile", r"\n")),
        ("networks", list("allow", r#""1.1.1.1/32""#)),
        ("an unfinished text", format!("{{\"command\":\"{}", "x".repeat(bytes - 20))),
        ("spaces", " ".repeat(bytes)),
        ("bytes", "\u{1}".repeat(bytes)),
    ]
}

fn check<T: RequestBody>(name: &str, bomb: &str, rules: &T::Rules) {
    let mut read = None;
    let peak = measure(|| read = T::read(bomb.as_bytes(), rules).err()).bytes_max;
    let limit = (2 * bomb.len() + ENTRIES_BYTES) as u64;
    let kind = std::any::type_name::<T>();
    assert!(peak <= limit, "{kind}, {name}: {peak} bytes for {}", bomb.len());
    if let Some(RequestRefusal::Malformed { what }) = read {
        assert!(what.len() < 2000, "{kind}, {name}: a message of {} bytes", what.len());
    }
}

#[test]
fn no_body_takes_more_than_a_few_times_its_bytes() {
    for (name, bomb) in bombs(SMALL) {
        check::<CreateBody>(name, &bomb, &Default::default());
        check::<CreateNetwork>(name, &bomb, &Default::default());
        check::<EventsBody>(name, &bomb, &());
        check::<TerminalBody>(name, &bomb, &Default::default());
        check::<SignalBody>(name, &bomb, &());
        check::<ExposeBody>(name, &bomb, &());
        check::<TokenBody>(name, &bomb, &());
    }
    for (name, bomb) in bombs(LARGE) {
        check::<CommandBody>(name, &bomb, &Default::default());
        check::<TemplateBody>(name, &bomb, &Default::default());
    }
}

#[test]
fn the_shape_of_a_body_is_checked_without_memory() {
    for (name, bomb) in bombs(LARGE) {
        let peak = measure(|| drop(reader::check_shape(bomb.as_bytes(), 16_384))).bytes_max;
        assert!(peak < 1024, "{name}: {peak} bytes");
    }
    // The tree of values of a text with a good shape is bounded, whatever its length.
    let most = format!("[{}0]", "0,".repeat(16_382));
    assert!(reader::check_shape(most.as_bytes(), 16_384).is_ok());
    let mut parsed = false;
    let peak = measure(|| parsed = serde_json::from_str::<serde_json::Value>(&most).is_ok()).bytes_max;
    assert!(peak < 2 << 20 && parsed, "{peak}");
}
