//! The endpoints, one verb a file, and the tables of them.
//!
//! [`router`] is all of the service as its listener sees it. A handler reads what was asked (`read`, crate `reader`), hands it to the
//! engine or the store, and writes what `api` says; it decides nothing. What fails becomes an `ApiError`, and nothing is left
//! behind: whatever a refused request had begun, the engine has undone.

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
mod list;
mod named;
mod network;
mod openapi;
mod pause;
mod ports;
mod post_events;
mod read;
mod resume;
mod stream;
mod terminate;
mod usage;
mod view;

use std::sync::Arc;

use crate::endpoint::{Conflict, Endpoint, Table};
use crate::layers::Guarded;
use crate::service::Service;

pub use openapi::document;

/// The whole service. Fails if two endpoints contradict each other.
pub fn guarded(service: Arc<Service>) -> Result<Guarded, Conflict> {
    Ok(Guarded { table: Arc::new(Table::new(endpoints())?), service })
}

/// Every endpoint. Router, authorization, rate limits, metric labels and the OpenAPI document are made from this list.
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
        network::get_endpoint(),
        network::change_endpoint(),
        execute::endpoint(),
        events::of_sandbox_endpoint(),
        post_events::endpoint(),
        events::of_account_endpoint(),
        images::endpoint(),
        usage::endpoint(),
    ];
    endpoints.extend(executions::endpoints());
    endpoints.extend(files::endpoints());
    endpoints.extend(ports::endpoints());
    endpoints.extend(docs::endpoints());
    endpoints
}

#[cfg(test)]
mod tests;
