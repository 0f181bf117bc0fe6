//! The stdio transport: one session, from the first message to the end of standard input.

use rmcp::service::{ServerInitializeError, serve_server};
use sandboxd_client::Client;

use crate::server::{Clients, Server};
use crate::session::{McpSettings, Session};

/// Serves one session on these streams until `from` ends, then terminates its unnamed sandbox.
pub async fn serve_stdio(
    client: Client,
    settings: McpSettings,
    from: impl tokio::io::AsyncRead + Send + Unpin + 'static,
    to: impl tokio::io::AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()>,
) -> Result<(), Box<ServerInitializeError>> {
    let session = Session::default();
    let server = Server::new(Clients::One(client), Some(session.clone()), settings);
    let served = async {
        match serve_server(server, (from, to)).await {
            Ok(service) => {
                // The error is a panic of rmcp's task. The session ends in any case.
                let _ = service.waiting().await;
                Ok(())
            }
            // The client left before the handshake.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(Box::new(error)),
        }
    };
    let result = tokio::select! {
        result = served => result,
        () = stop => Ok(()),
    };
    session.end().await;
    result
}
