//! Errors of capacity and quotas.

use super::class::{ErrorClass, Retry};
use crate::counters::Counters;

/// Why there is no room for what was requested.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    #[error(transparent)]
    NoCapacity(#[from] rules::Exhausted),
    #[error(transparent)]
    Shortage(#[from] rules::Shortage),
    #[error(transparent)]
    Quota(#[from] rules::QuotaExceeded),
    #[error("all {0} ranges of user ids of this host are in use; try again when other sandboxes have ended")]
    NoSlot(u32),
}

impl CapacityError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NoCapacity(_) | Self::NoSlot(_) => ErrorClass::Refused(Retry::Useful),
            Self::Shortage(_) | Self::Quota(_) => ErrorClass::Refused(Retry::Useless),
        }
    }

    /// Whether the host has no room for another sandbox, of any account.
    pub(super) fn is_of_host(&self) -> bool {
        match self {
            Self::NoCapacity(_) | Self::NoSlot(_) | Self::Shortage(_) => true,
            Self::Quota(_) => false,
        }
    }

    pub(super) fn count(&self, counters: &Counters) {
        match self {
            Self::NoCapacity(_) => counters.refused_capacity.add(1),
            Self::NoSlot(_) => counters.refused_slots.add(1),
            Self::Shortage(_) => counters.refused_shortage.add(1),
            Self::Quota(_) => counters.refused_quota.add(1),
        }
    }
}
