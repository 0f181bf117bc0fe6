//! A client of the service in the same process: its requests go through the layers of the API, without a socket.
//!
//! The MCP endpoint uses it. Each connection carries one request, because hyper would close it without notice after a request whose
//! body was not read, and another connection costs nothing here. Its task ends when the client closes it; a request whose client
//! closes the connection is dropped, as over a network.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use listen::PeerAddr;
use sandboxd_client::Client;
use tokio::io::DuplexStream;

use crate::layers::Guarded;

/// Bytes that a connection buffers in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// A hundred calls at once of one model take turns in the sandbox, however slow the machine is. Longer limits are the model's to know.
const LIMIT_WAIT: Duration = Duration::from_secs(10);

/// A client that sends this key. Its requests have the address of the client on whose behalf it works.
pub fn client(api: Guarded, key: &str, peer: Option<PeerAddr>) -> sandboxd_client::Result<Client> {
    let connect = move || {
        let (client, server) = tokio::io::duplex(BUFFER_BYTES);
        tokio::spawn(serve(api.clone(), peer, server));
        client
    };
    Client::builder().key(key).in_process(connect).limit_wait(LIMIT_WAIT).build()
}

async fn serve(api: Guarded, peer: Option<PeerAddr>, stream: DuplexStream) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (api, mut request) = (api.clone(), request.map(Body::new));
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        async move { Ok::<_, Infallible>(api.pass(request).await) }
    });
    let mut connection =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answer);
    // The only error is that the client closed the connection during a response.
    if (&mut connection).await.is_ok() {
        // The rest of a body that was not read: a client that cannot send it might not read the response.
        let mut stream = connection.into_parts().io.into_inner();
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}

#[cfg(test)]
mod tests {
    use engine::Clock;
    use rules::Capacity;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::testing::{Harness, Settings};

    #[tokio::test]
    async fn a_client_may_send_a_body_that_nobody_reads() {
        const LENGTH: usize = 10 * BUFFER_BYTES;
        let settings = Settings {
            clock: Clock::System,
            allow_any_image: false,
            ready: &["test:1"],
            hanging: "hanging:1",
            capacity: Capacity { cpu: 1, memory_mb: 1, disk_mb: 1 },
            max_output_bytes: 1024,
        };
        let harness = Harness::new(settings).await.unwrap();
        let (mut client, server) = tokio::io::duplex(BUFFER_BYTES);
        let serving = tokio::spawn(serve(harness.guarded.clone(), None, server));
        let head = format!("POST /v1/sandboxes HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b' '; LENGTH]).await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
        assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
        drop(client);
        serving.await.unwrap();
    }
}
