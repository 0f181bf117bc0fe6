//! What accounts, keys and the host are limited to.

mod capacity;
mod disk_pressure;
mod quotas;
mod rates;
mod stored_quotas;
