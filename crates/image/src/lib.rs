//! Images: resolves a name to unpacked, content-addressed layers that a driver can mount.
//!
//! A [`Catalogue`] lists the sources of each name. [`Images`] stores pulled images below one root directory and pulls
//! missing ones: from an OCI registry, an OCI layout, a tar or directory, or by building a Debian root. Data from a
//! source is untrusted: digests are verified, archives with paths outside their directory are refused, and sizes are
//! bounded.
//!
//! Layers and records appear by rename only. The next [`Images::open`] removes what a failure left. The engine and
//! the command line call this crate; it does not depend on sandboxes or drivers.

mod catalogue;
mod client;
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
pub use client::{ClientPull, NamedBy, PullQuota};
pub use error::{FailureKind, ImageError, SourceFailure};
pub use image::{Image, ImageConfig};
pub use images::{Collected, Eviction, Images, Options};
pub use limits::ImageLimits;
pub use oci::{BadCredentials, RegistryOptions, check_credentials};
pub use progress::{ProgressFn, PullReport, PullStep};
pub use source::{ImageSource, LayoutSelect};
pub use store::is_stored;
