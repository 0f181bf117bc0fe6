//! `POST /v1/sandboxes/{id}/code` and the contexts below it: the code interpreter of a sandbox.

use crate::endpoint::Endpoint;

mod contexts;
mod run;
mod running;
mod stream;

pub fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![run::endpoint()];
    endpoints.extend(contexts::endpoints());
    endpoints
}
