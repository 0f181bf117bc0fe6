//! DNS over UDP. Datagrams above a limit are dropped; clients retry.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;

use super::{QUESTION_BYTES_MAX, Server, now};
use crate::transport::Transport;

/// Pause after an error of the socket.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Answers questions over UDP until the server stops. A question that is too long is dropped.
pub async fn serve(server: &Arc<Server>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    // One byte more than is accepted, to detect truncation.
    let mut buffer = [0; QUESTION_BYTES_MAX + 1];
    loop {
        let received = tokio::select! {
            () = server.stop.cancelled() => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        match received {
            Ok((length, source)) if length <= QUESTION_BYTES_MAX => {
                handle_datagram(server, &socket, &buffer[..length], source);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot receive DNS datagrams; trying again");
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

fn handle_datagram(server: &Arc<Server>, socket: &Arc<UdpSocket>, bytes: &[u8], source: SocketAddr) {
    let Some((guest, limits)) = server.sandbox_at(source) else { return };
    let question_permit =
        if limits.is_within_rate(now()) { limits.question_permit(&server.all) } else { None };
    let Some(question_permit) = question_permit else { return server.too_many(&guest, Transport::Udp) };
    let (answering, socket, bytes) = (Arc::clone(server), Arc::clone(socket), bytes.to_vec());
    server.spawn(async move {
        let _question_permit = question_permit;
        if let Some(answer) = answering.answer(&guest, &bytes, Transport::Udp).await
            && let Err(error) = socket.send_to(&answer, source).await
        {
            // The link may be gone.
            tracing::debug!(id = %guest.id, %error, "cannot send a DNS answer");
        }
    });
}
