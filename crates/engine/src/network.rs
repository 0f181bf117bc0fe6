//! Sandboxes as the network knows them.

use std::io;
use std::sync::Arc;

use driver::{NetworkHook, SandboxSpec};
use net::Guest;
use store::SandboxRecord;

use crate::shared::Shared;

pub fn guest(record: &SandboxRecord) -> Guest {
    Guest { id: record.id.clone(), slot: record.slot }
}

pub fn guest_of(spec: &SandboxSpec) -> Guest {
    Guest { id: spec.id.clone(), slot: spec.slot }
}

/// What connects a sandbox while it is started.
pub fn plug(shared: &Shared, guest: Guest) -> NetworkHook {
    let network = Arc::clone(&shared.network);
    Arc::new(move |namespace| network.plug(&guest, namespace).map_err(io::Error::other))
}
