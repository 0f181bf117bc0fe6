//! The requests of `filesystem.Filesystem`, and the events of watches.

use engine::{PathDetails, WatchEventKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::entry;
use crate::envd::proto_json::{Number, or_default};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PathRequest {
    #[serde(deserialize_with = "or_default")]
    pub path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListRequest {
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    #[serde(deserialize_with = "or_default")]
    pub depth: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MoveRequest {
    #[serde(deserialize_with = "or_default")]
    pub source: String,
    #[serde(deserialize_with = "or_default")]
    pub destination: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WatchRequest {
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    #[serde(deserialize_with = "or_default")]
    pub recursive: bool,
    #[serde(deserialize_with = "or_default", alias = "includeEntry")]
    pub include_entry: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WatcherRequest {
    #[serde(deserialize_with = "or_default", alias = "watcherId")]
    pub watcher_id: String,
}

/// An event. Its name is relative to the watched directory.
pub fn event(kind: WatchEventKind, name: &[u8], details: Option<&PathDetails>) -> Value {
    let kind = match kind {
        WatchEventKind::Create => "EVENT_TYPE_CREATE",
        WatchEventKind::Write => "EVENT_TYPE_WRITE",
        WatchEventKind::Remove => "EVENT_TYPE_REMOVE",
        WatchEventKind::Rename => "EVENT_TYPE_RENAME",
        WatchEventKind::Chmod => "EVENT_TYPE_CHMOD",
    };
    let mut event = json!({ "name": entry::text(name), "type": kind });
    if let (Some(details), Some(event)) = (details, event.as_object_mut()) {
        event.insert("entry".to_owned(), entry::to_json(details));
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envd::proto_json::parse;

    #[test]
    fn both_spellings_and_null_are_accepted() {
        for json in [
            r#"{"path":"/a","recursive":true,"includeEntry":true,"allowNetworkMounts":true}"#,
            r#"{"path":"/a","recursive":true,"include_entry":true}"#,
        ] {
            let request: WatchRequest = parse(json.as_bytes()).unwrap();
            assert!(request.recursive && request.include_entry && request.path == "/a", "{json}");
        }
        let request: ListRequest = parse(br#"{"path":null,"depth":null}"#).unwrap();
        assert_eq!((request.path.as_str(), request.depth), ("", Number(0)));
    }

    #[test]
    fn each_kind_of_event_has_its_name_in_the_protocol() {
        for (kind, name) in [
            (WatchEventKind::Create, "EVENT_TYPE_CREATE"),
            (WatchEventKind::Write, "EVENT_TYPE_WRITE"),
            (WatchEventKind::Remove, "EVENT_TYPE_REMOVE"),
            (WatchEventKind::Rename, "EVENT_TYPE_RENAME"),
            (WatchEventKind::Chmod, "EVENT_TYPE_CHMOD"),
        ] {
            assert_eq!(event(kind, b"a/b", None), json!({ "name": "a/b", "type": name }));
        }
        let odd = event(WatchEventKind::Create, b"a\xff", None);
        assert_eq!(odd["name"], "a\u{fffd}", "names are bytes, and JSON is text");
    }

    #[test]
    fn a_depth_is_a_number_or_its_text() {
        for (json, depth) in [
            (r#"{"depth":3}"#, Some(3)),
            (r#"{"depth":"4294967295"}"#, Some(u32::MAX)),
            (r#"{"depth":-1}"#, None),
            (r#"{"depth":1.5}"#, None),
            (r#"{"depth":4294967296}"#, None),
        ] {
            let read = parse::<ListRequest>(json.as_bytes()).ok();
            assert_eq!(read.map(|request| request.depth.0), depth, "{json}");
        }
    }

    #[test]
    fn a_watcher_has_an_id_in_both_spellings_and_a_path_of_its_own() {
        for json in [r#"{"watcherId":"w1"}"#, r#"{"watcher_id":"w1"}"#] {
            assert_eq!(parse::<WatcherRequest>(json.as_bytes()).unwrap().watcher_id, "w1", "{json}");
        }
        let moved: MoveRequest = parse(br#"{"source":"/a","destination":"/b"}"#).unwrap();
        assert_eq!((moved.source.as_str(), moved.destination.as_str()), ("/a", "/b"));
        assert!(parse::<PathRequest>(br#"{"path":["/a"]}"#).is_err());
    }
}
