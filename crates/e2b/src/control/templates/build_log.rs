//! The log of a build in pages, by time and in both directions.

use std::collections::VecDeque;

use api::TemplateId;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::LogEvent;
use serde_json::{Value, json};
use store::EventOrder;

use super::super::logs::Query;
use super::super::{Call, view};
use super::status::{entry, level, of_path};
use crate::error::E2bError;

/// The log of a build. Any id of its template names it.
pub async fn build_log(call: Call, _: Body) -> Result<Response, E2bError> {
    let query = Query::of_entries(call.query.as_deref())?;
    let mut page = Page { query, entries: VecDeque::new() };
    if let Some(template) = of_path(&call, &call.template_id()?)? {
        page.read(&call, &template.id)?;
    }
    Ok(view::json(StatusCode::OK, &json!({ "logs": page.entries })))
}

/// The entries of a response.
struct Page {
    query: Query,
    entries: VecDeque<Value>,
}

impl Page {
    /// Reads what the log has now. It is bounded by the builder.
    fn read(&mut self, call: &Call, id: &TemplateId) -> Result<(), E2bError> {
        let reader = call.api.service.builder.log(&call.caller.account, id, 0);
        let Some(mut reader) = reader.map_err(E2bError::of_builder)? else { return Ok(()) };
        while let Some(events) = reader.next_now().map_err(|_| E2bError::internal())? {
            for event in &events {
                self.add(event);
            }
            if self.is_complete() {
                break;
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.query.order == EventOrder::OldestFirst && self.entries.len() == self.query.limit
    }

    fn add(&mut self, event: &LogEvent) {
        let entry = entry(event);
        let message = entry["message"].as_str().unwrap_or_default();
        if self.is_complete() || !self.query.takes(event.at, level(event), message) {
            return;
        }
        match self.query.order {
            EventOrder::OldestFirst => self.entries.push_back(entry),
            EventOrder::NewestFirst => self.entries.push_front(entry),
        }
        self.entries.truncate(self.query.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::BuildEvent;
    use rules::TimeMs;

    /// The messages of a page of a log in which each second has a line, every third of them on stderr.
    fn page(query: &str) -> Vec<String> {
        let query = Query::of_entries(Some(query)).unwrap();
        let mut page = Page { query, entries: VecDeque::new() };
        for second in 0..9 {
            let kind = if second % 3 == 2 { BuildEvent::Stderr } else { BuildEvent::Stdout };
            page.add(&LogEvent {
                kind,
                at: TimeMs(second * 1000),
                data: format!("line {second}"),
                id: second,
            });
        }
        page.entries.iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
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
}
