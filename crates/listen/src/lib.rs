//! The sockets of the service: TLS with its certificates, HTTP/1.1 and 2, time and size limits, the redirect from plain
//! HTTP, an orderly stop. It carries requests to an [`Application`] and knows nothing of what they are about.
//!
//! The program that puts the service together calls [`bind`], [`Tls::load`] and then [`serve`], once for all its listeners.
//! Starting can fail (an address in use, a broken certificate) and then nothing has been started; once it serves, whatever a
//! client sends ends at most that client's connection.
//!
//! hyper answers a malformed HTTP/1 head with a bare status line. Recognising and replacing that on its way out would be
//! guesswork, because a body may look the same; so each head is read and checked before hyper sees it (`gate`), and every answer
//! is the application's or one of [`Answers`]. In HTTP/2 what breaks the protocol is reset, without an answer, as RFC 9113 asks. One
//! bare answer remains there: the protocol layer's own 431 to headers of more than 256 KiB.

mod activity;
mod answers;
mod body;
mod connection;
mod gate;
mod redirect;
mod serve;
mod service;
mod settings;
mod sockets;
mod takeover;
mod tasks;
mod tls;
mod wire;

pub use answers::{Answers, Fault};
pub use body::{BodyError, Pace};
pub use serve::{Listener, Server, Stopped, serve};
pub use service::{Answer, Application, PeerAddr};
pub use settings::Limits;
pub use sockets::{BindError, bind, raise_file_limit};
pub use takeover::{Taken, Takeover};
pub use tls::{Certificate, SelfSigned, Tls, TlsConfig, TlsError};
