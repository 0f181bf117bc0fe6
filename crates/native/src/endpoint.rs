//! The declarations of the native API: their handlers share a [`Service`].

use admission::endpoint::{self, NoBody};
use admission::keyring::Caller;

use service::Service;

/// A request that was authorized and counted.
pub type Call<C = Caller, B = NoBody> = endpoint::Call<Service, C, B>;
/// A declared endpoint.
pub type Endpoint = endpoint::Endpoint<Service>;
/// All endpoints.
pub type Table = endpoint::Table<Service>;
