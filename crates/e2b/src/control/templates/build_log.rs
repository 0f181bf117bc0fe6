//! The log of a build in pages, by time and in both directions.

use std::collections::VecDeque;

use admission::error::ApiError;
use api::TemplateId;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::LogEvent;
use serde_json::{Value, json};
use store::EventOrder;

use super::super::logs::Query;
use super::super::{Call, view};
use super::status::{entry, level, message, of_path};
use crate::error::E2bError;

/// A page that has as many bytes of text ends: a line can have 64 KiB.
const PAGE_BYTES: usize = 1 << 20;

/// The log of a build. Any id of its template names it.
pub async fn build_log(call: Call, _: Body) -> Result<Response, E2bError> {
    let mut page = Page::new(Query::of_entries(call.query.as_deref())?);
    if let Some(template) = of_path(&call, &call.template_id()?)? {
        page.read(&call, &template.id).await?;
    }
    Ok(view::json(StatusCode::OK, &json!({ "logs": page.entries() })))
}

/// What a response has of a log: the first events that the query asks for, or the last ones.
struct Page {
    query: Query,
    /// In the order of the log.
    events: VecDeque<LogEvent>,
    bytes: usize,
}

impl Page {
    fn new(query: Query) -> Self {
        Self { query, events: VecDeque::new(), bytes: 0 }
    }

    /// Reads what the log has now. It is bounded by the builder.
    async fn read(&mut self, call: &Call, id: &TemplateId) -> Result<(), E2bError> {
        let reader = call.api.service.builder.log(&call.caller.account, id, 0);
        let Some(mut reader) = reader.map_err(E2bError::of_builder)? else { return Ok(()) };
        while let Some(events) = reader.next_now().map_err(ApiError::internal)? {
            for event in events {
                self.add(event);
            }
            if self.is_complete() {
                break;
            }
            // A log can have hundreds of thousands of lines, and the thread has other requests.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.query.order == EventOrder::OldestFirst && self.is_full(0, 0)
    }

    /// Whether the page would be full without these events.
    fn is_full(&self, events: usize, bytes: usize) -> bool {
        self.events.len() >= self.query.limit + events || self.bytes >= PAGE_BYTES + bytes
    }

    fn add(&mut self, event: LogEvent) {
        if self.is_complete() || !self.query.takes(event.at, level(&event), &message(&event)) {
            return;
        }
        self.bytes += event.data.len();
        self.events.push_back(event);
        if self.query.order == EventOrder::NewestFirst {
            self.drop_oldest();
        }
    }

    /// Drops the events without which the page is full.
    fn drop_oldest(&mut self) {
        while let Some(oldest) = self.events.front().map(|event| event.data.len())
            && self.is_full(1, oldest)
        {
            self.events.pop_front();
            self.bytes -= oldest;
        }
    }

    fn entries(&self) -> Vec<Value> {
        match self.query.order {
            EventOrder::OldestFirst => self.events.iter().map(entry).collect(),
            EventOrder::NewestFirst => self.events.iter().rev().map(entry).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::BuildEvent;
    use rules::TimeMs;

    /// The messages of a page of a log in which each second has a line, every third of them on stderr.
    fn page(query: &str) -> Vec<String> {
        let mut page = Page::new(Query::of_entries(Some(query)).unwrap());
        for second in 0..9 {
            page.add(line(second, format!("line {second}")));
        }
        page.entries().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    fn line(second: u64, data: String) -> LogEvent {
        let kind = if second % 3 == 2 { BuildEvent::Stderr } else { BuildEvent::Stdout };
        LogEvent { kind, at: TimeMs(second * 1000), data, id: second }
    }

    #[test]
    fn a_page_is_that_which_the_query_asks_for() {
        let lines =
            |seconds: &[u64]| seconds.iter().map(|second| format!("line {second}")).collect::<Vec<_>>();
        assert_eq!(page(""), lines(&[0, 1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(page("limit=2&cursor=3000"), lines(&[3, 4]));
        assert_eq!(page("direction=backward&limit=2"), lines(&[8, 7]));
        assert_eq!(page("direction=backward&limit=2&cursor=3000"), lines(&[3, 2]));
        assert_eq!(page("level=warn"), lines(&[2, 5, 8]));
        assert_eq!(page("search=e+7"), lines(&[7]));
        assert_eq!(page("level=error"), lines(&[]));
    }

    /// Long lines must not fill the memory of the service.
    #[test]
    fn a_page_of_long_lines_is_short() {
        for (direction, first, last) in [("forward", 0, 15), ("backward", 39, 24)] {
            let query = Query::of_entries(Some(&format!("direction={direction}"))).unwrap();
            let mut page = Page::new(query);
            for second in 0..40 {
                page.add(line(second, "x".repeat(64 * 1024)));
            }
            let entries = page.entries();
            let at = |second: u64| json!(api::Timestamp::from(TimeMs(second * 1000)));
            assert_eq!((entries.len(), page.bytes), (16, PAGE_BYTES), "{direction}");
            assert_eq!(entries[0]["timestamp"], at(first), "{direction}");
            assert_eq!(entries[15]["timestamp"], at(last), "{direction}");
        }
        let mut page = Page::new(Query::of_entries(None).unwrap());
        for (second, bytes) in [(0, 1), (1, PAGE_BYTES), (2, 1)] {
            page.add(line(second, "x".repeat(bytes)));
        }
        assert_eq!((page.entries().len(), page.bytes), (2, PAGE_BYTES + 1), "the first ones");
        let mut page = Page::new(Query::of_entries(Some("direction=backward")).unwrap());
        page.add(line(0, "short".to_owned()));
        page.add(line(1, "x".repeat(2 * PAGE_BYTES)));
        assert_eq!((page.entries().len(), page.bytes), (1, 2 * PAGE_BYTES), "one entry always fits");
    }
}
