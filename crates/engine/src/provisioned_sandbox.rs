//! A sandbox that is provisioned and has no owner: the warm pool holds it, a create claims it.

use api::Resources;
use driver::SandboxSpec;

use crate::ledger::{Reservation, SlotLease};
use crate::link::Agent;
use crate::settings::Template;

/// A running sandbox without an owner.
pub struct ProvisionedSandbox {
    pub spec: SandboxSpec,
    pub resources: Resources,
    pub template: Template,
    pub agent: Agent,
    pub reservation: Reservation,
    pub slot: SlotLease,
}
