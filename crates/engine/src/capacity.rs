//! What the host has for sandboxes: the ledger of what is promised, provisioned sandboxes, and the warm pool of them.

pub mod host_watch;
pub mod ledger;
pub mod provision;
