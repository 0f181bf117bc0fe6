//! `POST /v1/sandboxes/{id}/code` and the contexts below it: the code interpreter of a sandbox.

mod contexts;
mod run;
mod running;
mod stream;

use crate::endpoint::Endpoint;

pub fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![run::endpoint()];
    endpoints.extend(contexts::endpoints());
    endpoints
}
