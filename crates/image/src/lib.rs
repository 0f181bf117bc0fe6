//! Images: from a name to unpacked, content-addressed layers that a driver can mount.
//!
//! A [`Catalogue`] says which sources a name has. [`Images`] keeps what was fetched under one root directory and fetches
//! what is missing: from an OCI registry, an OCI layout, a tar or directory, or by building a Debian root. Everything
//! that comes from a source is taken as hostile: digests are verified, archives that try to leave their directory are
//! refused, and sizes are bounded.
//!
//! A failure leaves nothing behind but what the next [`Images::open`] removes: layers and records appear by rename only.
//! The engine and the command line call this crate; it knows neither sandboxes nor drivers.

mod catalogue;
mod debian;
mod error;
mod fault;
mod image;
mod images;
mod job;
mod layers;
mod limits;
mod oci;
mod process;
mod progress;
mod rootfs;
mod source;
mod store;
mod unpack;

pub use catalogue::Catalogue;
pub use error::{Failure, FailureKind, ImageError};
pub use image::{Image, ImageConfig};
pub use images::{Collected, Images, Options};
pub use limits::Limits;
pub use oci::RegistryOptions;
pub use progress::{Progress, ProgressFn, Stage};
pub use source::{LayoutSelect, Source};
