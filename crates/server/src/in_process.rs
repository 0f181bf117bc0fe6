//! A client of the service in the same process: its requests go through the layers of the API, without a socket.
//!
//! The MCP endpoint uses it. Each connection has a task, which ends when the client closes it; a request whose client closes the
//! connection is dropped, as over a network.

use std::convert::Infallible;

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

/// A client that sends this key. Its requests have the address of the client on whose behalf it works.
pub fn client(api: Guarded, key: &str, peer: Option<PeerAddr>) -> sandboxd_client::Result<Client> {
    let connect = move || {
        let (client, server) = tokio::io::duplex(BUFFER_BYTES);
        tokio::spawn(serve(api.clone(), peer, server));
        client
    };
    Client::builder().key(key).in_process(connect).build()
}

async fn serve(api: Guarded, peer: Option<PeerAddr>, stream: DuplexStream) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (api, mut request) = (api.clone(), request.map(Body::new));
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        async move { Ok::<_, Infallible>(api.pass(request).await) }
    });
    // The only error is that the client closed the connection during a response.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}
