//! The declarations of the native API: their handlers share a [`Service`].

use admission::endpoint::{self, Door, NoBody};
use admission::error::ApiError;
use admission::keyring::Caller;

use service::Service;

impl Door for Service {
    type Error = ApiError;
}

/// A request that was authorized and counted.
pub type Call<C = Caller, B = NoBody> = endpoint::Call<Service, C, B>;
/// A declared endpoint.
pub type Endpoint = endpoint::Endpoint<Service>;
/// All endpoints.
pub type Table = endpoint::Table<Service>;
