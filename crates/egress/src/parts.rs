//! What the DNS server and the proxy work with.

use std::sync::Arc;

use crate::gate::Gate;
use crate::guests::Guests;
use crate::refusals::Refusals;
use crate::resolver::Resolve;
use rules::Ranges;

/// Shared by everything that serves sandboxes.
pub struct Parts {
    pub guests: Arc<Guests>,
    pub gate: Arc<dyn Gate>,
    pub resolver: Arc<dyn Resolve>,
    pub refusals: Refusals,
    pub ranges: Ranges,
}
