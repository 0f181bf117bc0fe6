//! The state that the DNS server and the proxy share.

use std::sync::Arc;

use crate::kernel::KernelNetwork;
use crate::refusals::Refusals;
use crate::registry::PolicyRegistry;
use crate::resolver::Resolve;
use rules::Ranges;

/// One instance for each daemon.
pub struct Parts {
    pub registry: Arc<PolicyRegistry>,
    pub kernel: Arc<dyn KernelNetwork>,
    pub resolver: Arc<dyn Resolve>,
    pub refusals: Refusals,
    pub ranges: Ranges,
}
