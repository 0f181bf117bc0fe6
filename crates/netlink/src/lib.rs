//! Links, addresses and routes of a network namespace, by the kernel's route netlink.

pub mod links;
pub mod routes;
mod socket;

pub use socket::{DATAGRAM_BYTES, RouteSocket, is_absent, is_present};
