//! Forwards the TLS handshake of an allowed name until no other unencrypted ClientHello can follow. Data behind the first
//! ClientHello is held until the server has answered it: it could be a second one.

use std::io;

use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use super::bounds::ConnectionPermit;
use super::hello::hello_bytes;
use super::preamble::PREAMBLE_TIME;
use super::second_hello::{Second, asks_for_second, second};
use super::session::Stop;
use super::sniff::TLS_BYTES_MAX;
use super::splice::{copy_direction, write_all};
use super::wire::Wire;
use crate::refusals::Reason;

/// Bytes of one read.
const READ_BYTES: usize = 1024;
/// Without a complete answer after this many bytes, the server does not ask for another ClientHello.
const ANSWER_BYTES_MAX: usize = 1024;

/// `bytes` begin with the ClientHello for `name`.
pub async fn begin(
    client: &Wire,
    server: &Wire,
    bytes: Vec<u8>,
    name: &str,
    permit: &mut ConnectionPermit,
) -> Result<(), Stop> {
    let (hello, behind) = bytes.split_at(hello_bytes(&bytes));
    write_all(server, hello).await?;
    let mut behind = behind.to_vec();
    drop(bytes);
    if forward_answer(client, server).await? {
        if !permit.undecided() {
            return Err(Stop::Refused(Reason::TooMany, None));
        }
        let until = Instant::now() + PREAMBLE_TIME;
        // The rest of the HelloRetryRequest may still be arriving.
        let server_asks = async {
            copy_direction(server, client).await?;
            std::future::pending().await
        };
        let second_hello = timeout_at(until, async {
            tokio::select! {
                second_hello = read_second(client, &mut behind, name) => second_hello,
                failed = server_asks => failed,
            }
        });
        second_hello.await.unwrap_or(Err(Stop::Refused(Reason::Malformed, None)))?;
        permit.decided();
    }
    Ok(write_all(server, &behind).await?)
}

/// Forwards the beginning of the server's answer. Returns whether it asks for another ClientHello.
async fn forward_answer(client: &Wire, server: &Wire) -> Result<bool, Stop> {
    let mut received = Vec::new();
    let asks = loop {
        tokio::select! {
            ready = server.readable() => ready?,
            _ = client.ready(Interest::ERROR) => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        }
        match take(server, &mut received)? {
            Some(0) => break false,
            _ => match asks_for_second(&received) {
                Some(asks) => break asks,
                None if received.len() > ANSWER_BYTES_MAX => break false,
                None => {}
            },
        }
    };
    write_all(client, &received).await?;
    Ok(asks)
}

/// Reads until the second ClientHello is complete and for the same name, or until there will be none.
async fn read_second(client: &Wire, behind: &mut Vec<u8>, name: &str) -> Result<(), Stop> {
    loop {
        let wanted = match second(behind, name) {
            Second::Same | Second::Over => return Ok(()),
            Second::Other(other) => return Err(Stop::Refused(Reason::NameChanged, other)),
            Second::NeedMore(wanted) if wanted <= TLS_BYTES_MAX => wanted,
            Second::NeedMore(_) | Second::Malformed => return Err(Stop::Refused(Reason::Malformed, None)),
        };
        while behind.len() < wanted {
            client.readable().await?;
            if take(client, behind)? == Some(0) {
                return Ok(());
            }
        }
    }
}

/// Reads what is available. `None` if nothing is.
fn take(from: &Wire, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    into.reserve(READ_BYTES);
    match from.try_read_buf(into) {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
