//! Rules of HTTP and JSON that hold for every operation.

mod errors;
mod health;
mod hostile_bodies;
mod hostile_requests;
mod https;
mod idempotency;
mod schemathesis;
mod shapes;
mod unknown_fields;
mod versioning;
