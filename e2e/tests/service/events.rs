//! Events: their lists, their streams, and kills of the daemon meanwhile.

mod kills;
mod lists;
mod streams;

use e2e::service::Client;
use serde_json::Value;

use crate::{action_path, number, text};

pub const EVENTS: &str = "/v1/events";

pub fn events_path(id: &str) -> String {
    action_path(id, "events")
}

/// All events of a query, oldest first, read page by page by id.
pub async fn all_events(client: &Client, path: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    let mut after = "ev_0000000000000000".to_owned();
    let joint = if path.contains('?') { '&' } else { '?' };
    loop {
        let page =
            client.get(&format!("{path}{joint}limit=100&after={after}")).await.unwrap().is(200).unwrap();
        let data = page["data"].as_array().unwrap();
        if let Some(last) = data.last() {
            after = text(&last["id"]);
        }
        events.extend(data.iter().cloned());
        if page["pagination"]["hasMore"] == false {
            assert_eq!(number(&page["pagination"]["total"]), events.len() as u64, "{path}");
            return events;
        }
    }
}
