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
}
