//! The listeners of the service: TLS with its certificates, HTTP/1.1 and HTTP/2, limits on time, size and
//! connections, the redirect from plain HTTP, and the graceful stop. Requests go to an [`Application`]; this crate
//! does not depend on their content.
//!
//! The program calls [`bind`] and [`Tls::load`], then [`serve`] once for all its listeners. The first two can fail (an address in
//! use, a broken certificate), and then nothing is running. Afterwards an error ends at most the connection of the client that
//! caused it.
//!
//! hyper responds to a malformed HTTP/1 head with a bare status line, but every response of the service has an error body. So each
//! head is checked before hyper parses it (`head_filter`; docs/adr/0015-heads-are-checked-before-hyper.md), and every response comes from
//! the application or from [`Answers`]. HTTP/2 streams that break the protocol are reset without a response, as RFC 9113 asks; the
//! one bare response is h2's own 431 to headers of more than 256 KiB.

mod activity;
mod answers;
mod body;
mod connection;
mod head_filter;
mod leftover;
mod limiter;
mod redirect;
mod serve;
mod service;
mod settings;
mod sockets;
mod takeover;
mod tasks;
mod tls;
mod unread;
mod wire;

pub use answers::{Answers, Fault};
pub use body::{BodyError, Pace};
#[cfg(feature = "fuzzing")]
pub use head_filter::differential;
pub use limiter::IsExempt;
pub use serve::{Listener, Server, Stopped, serve};
pub use service::{Answer, Application, PeerAddr};
pub use settings::Limits;
pub use sockets::{BindError, bind, raise_file_limit};
pub use takeover::{Takeover, UpgradedStream};
pub use tls::{Certificate, SelfSigned, Tls, TlsConfig, TlsError, is_certificate_name};
