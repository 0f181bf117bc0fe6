//! The endpoints, one per module, and the list of all.
//!
//! [`guarded`] is the whole API, as the relay passes requests to it. A handler parses the request (`read`, crate `reader`), calls
//! the engine or the store, and returns a type of `api`; rules and decisions are in other crates. Errors become `ApiError`s; the
//! engine has then undone what the request had begun.

mod code;
mod create;
mod docs;
mod events;
mod execute;
mod executions;
mod files;
mod follow;
mod get;
mod health;
mod images;
mod info;
mod list;
mod mcp;
mod metrics;
mod network;
mod openapi;
mod pause;
mod ports;
mod post_events;
mod read;
mod requested_sandbox;
mod resume;
mod sandbox_request;
mod snapshots;
mod stream;
mod templates;
mod terminate;
mod timeout;
mod usage;
mod view;

use std::sync::Arc;

use admission::endpoint::Conflict;
use service::Service;

use crate::endpoint::{Endpoint, Table};
use crate::layers::Guarded;

pub use info::{FixedLimits, limits_of};
pub use openapi::document;

/// The API with its layers. Fails if two endpoints contradict each other.
pub fn guarded(service: Arc<Service>) -> Result<Guarded, Conflict> {
    let mut all = endpoints();
    if let Some(server) = &service.mcp {
        let api = Guarded { table: Arc::new(Table::new(endpoints())?), service: Arc::clone(&service) };
        all.extend(mcp::endpoints(server, &api));
    }
    Ok(Guarded { table: Arc::new(Table::new(all)?), service })
}

/// Every endpoint of the REST API. Router, authorization, rate limits, metric labels and the OpenAPI document derive from this list.
pub fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![
        health::endpoint(),
        openapi::endpoint(),
        list::endpoint(),
        create::endpoint(),
        get::endpoint(),
        terminate::endpoint(),
        pause::endpoint(),
        resume::endpoint(),
        timeout::endpoint(),
        metrics::endpoint(),
        network::get_endpoint(),
        network::change_endpoint(),
        execute::endpoint(),
        events::of_sandbox_endpoint(),
        post_events::endpoint(),
        events::of_account_endpoint(),
        images::endpoint(),
        usage::endpoint(),
        info::endpoint(),
    ];
    endpoints.extend(snapshots::endpoints());
    endpoints.extend(templates::endpoints());
    endpoints.extend(code::endpoints());
    endpoints.extend(executions::endpoints());
    endpoints.extend(files::endpoints());
    endpoints.extend(ports::endpoints());
    endpoints.extend(docs::endpoints());
    endpoints
}

#[cfg(test)]
mod tests;
