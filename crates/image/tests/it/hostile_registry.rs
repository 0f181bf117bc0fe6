//! Registries that clients may not name, and registries whose responses never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use image::{FailureKind, ImageError, NamedBy, Options, RegistryOptions};
use rules::ImageReference;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// What the server sends for a request: a head without `Content-Length` and a body, whose last part is repeated until the client leaves.
struct Response {
    head: String,
    body: Vec<u8>,
    is_endless: bool,
}

impl Response {
    fn new(status: &str, headers: &str, body: &str) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n");
        Self { head, body: body.as_bytes().to_vec(), is_endless: false }
    }

    fn endless(status: &str, body: &str) -> Self {
        Self { is_endless: true, ..Self::new(status, "", body) }
    }
}

/// A server with one request per connection, and the bytes of bodies that it has sent.
struct Server {
    port: u16,
    sent: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(respond: impl Fn(u16, &str) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sent, respond) = (Arc::new(AtomicUsize::new(0)), Arc::new(respond));
        let counted = Arc::clone(&sent);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (sent, respond) = (Arc::clone(&counted), Arc::clone(&respond));
                // A client that leaves is not an error of the server.
                connections.spawn(async move { drop(serve(client, port, &sent, respond.as_ref()).await) });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, sent, task }
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut client: TcpStream,
    port: u16,
    sent: &AtomicUsize,
    respond: &(dyn Fn(u16, &str) -> Response + Send + Sync),
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let response = respond(port, &String::from_utf8_lossy(&head));
    client.write_all(response.head.as_bytes()).await?;
    client.write_all(&response.body).await?;
    let more = vec![b' '; 64 << 10];
    if response.is_endless {
        // Until the client closes the connection.
        loop {
            client.write_all(&more).await?;
            sent.fetch_add(more.len(), Ordering::SeqCst);
        }
    }
    client.shutdown().await
}

fn kind(error: &ImageError) -> FailureKind {
    failures(error)[0].kind
}

fn one_layer() -> TestImage {
    TestImage::new(vec![Layer::new(&tar(&[("bin/", b""), ("bin/right", b"right")]), Packing::Gzip)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_name_a_registry_without_a_public_address() {
    let registry = Registry::start().await;
    registry.push_image("app:1", &one_layer()).await;
    let proxy = Proxy::counting(registry.port).await;
    let store = TestStore::new();
    let configured = format!("127.0.0.1:{}/app:1", proxy.port);
    let images = store.open(&[("app", &[&configured])]);
    let configured = ImageReference::parse(&configured).unwrap();
    for host in ["127.0.0.1", "localhost", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"] {
        // Not every form of an address is a reference.
        let Some(reference) = ImageReference::parse(&format!("{host}:{}/app:1", proxy.port)) else {
            continue;
        };
        let refused = match images.import_for_client(&reference, client(), silent()).await {
            Err(error @ ImageError::AllFailed { .. }) => error,
            other => panic!("{host}: {other:?}"),
        };
        assert_eq!(kind(&refused), FailureKind::Closed, "{host}: {refused}");
        assert!(refused.to_string().contains("images.private_registries"), "{refused}");
        assert!(images.get(&reference.to_string()).is_none());
    }
    // Addresses that lead nowhere are refused, too, without an attempt to connect.
    for host in ["169.254.169.254", "10.255.255.1:5000", "192.168.255.1", "100.64.0.1"] {
        let reference = ImageReference::parse(&format!("{host}/app:1")).unwrap();
        let refused = images.import_for_client(&reference, client(), silent());
        let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap().unwrap_err();
        assert_eq!(kind(&refused), FailureKind::Closed, "{host}: {refused}");
    }
    assert_eq!(proxy.seen.lock().unwrap().len(), 0);
    store.assert_empty();
    // The operator's source works, and a client still cannot name it.
    let image = images.ensure("app", silent()).await.unwrap();
    assert_eq!(
        images.import_for_client(&configured, client(), silent()).await.map_err(|error| kind(&error)),
        Err(FailureKind::Closed)
    );
    // Unless the operator lists the registry.
    let listed = vec![format!("127.0.0.1:{}", proxy.port)];
    let registry = RegistryOptions { private_registries: listed, ..store.options().registry };
    let images = store.open_with(&[], Options { registry, ..store.options() });
    let named = images.import_for_client(&configured, client(), silent()).await.unwrap();
    assert_eq!((named.name.clone(), &named.digest), (configured.to_string(), &image.digest));
    assert_eq!((named.named_by, image.named_by), (NamedBy::Client, NamedBy::Operator));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_requested_and_renewed() {
    let registry = Registry::start().await;
    let image = one_layer();
    registry.push_image("app:1", &image).await;
    let (upstream, tokens) = (registry.port, Arc::new(AtomicUsize::new(0)));
    let issued = Arc::clone(&tokens);
    // The first token is valid for the manifest only.
    let server = Server::start(move |port, head| {
        let line = head.lines().next().unwrap();
        if line.contains("/token?") {
            assert!(line.contains("scope=repository%3Aapp%3Apull") && line.contains("service=s"), "{line}");
            let number = issued.fetch_add(1, Ordering::SeqCst);
            return Response::new("200 OK", "", &format!(r#"{{"access_token": "number-{number}"}}"#));
        }
        let is_blob = line.contains("/blobs/");
        let is_valid = head.contains("Bearer number-1") || (head.contains("Bearer number-0") && !is_blob);
        if !is_valid {
            let header = format!(
                "WWW-Authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\",service=\"s\"\r\nContent-Length: 0\r\n"
            );
            return Response::new("401 Unauthorized", &header, "");
        }
        let path = line.split(' ').nth(1).unwrap();
        Response::new("307 Elsewhere", &format!("Location: http://127.0.0.1:{upstream}{path}\r\nContent-Length: 0\r\n"), "")
    })
    .await;
    let store = TestStore::new();
    let images = store.open(&[("x", &[&format!("127.0.0.1:{}/app:1", server.port)])]);
    images.ensure("x", silent()).await.unwrap();
    assert_eq!(tokens.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_without_an_end_are_bounded() {
    let endless = |what: &'static str| {
        Server::start(move |port, head| {
            let line = head.lines().next().unwrap();
            let is = |part: &str| line.contains(part);
            match what {
                "manifest" if is("/manifests/") => Response::endless("200 OK", "{"),
                "error" if is("/manifests/") => Response::endless("403 Forbidden", r#"{"errors": ["#),
                "token" if is("/token") => Response::endless("200 OK", r#"{"token": ""#),
                "token" => {
                    let header =
                        format!("WWW-Authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\"\r\n");
                    Response::new("401 Unauthorized", &header, "")
                }
                "first" => Response::endless("200 OK", ""),
                _ => Response::new("200 OK", "", ""),
            }
        })
    };
    for (what, kinds, limit) in [
        ("manifest", &[FailureKind::TooBig][..], 64 << 20),
        ("error", &[FailureKind::Denied], 48 << 20),
        ("token", &[FailureKind::TooBig], 48 << 20),
        // The body of the first response is not read at all; what follows is no manifest.
        ("first", &[FailureKind::Refused, FailureKind::TooBig], 96 << 20),
    ] {
        let server = endless(what).await;
        let store = TestStore::new();
        let images = store.open(&[("x", &[&format!("127.0.0.1:{}/app:1", server.port)])]);
        let pull = tokio::time::timeout(Duration::from_secs(90), images.ensure("x", silent()));
        let failed = pull.await.unwrap_or_else(|_| panic!("{what} does not end")).unwrap_err();
        assert!(kinds.contains(&kind(&failed)), "{what}: {failed}");
        // What the kernel buffers counts as sent.
        assert!(server.sent() < limit, "{what}: {} bytes", server.sent());
        store.assert_empty();
    }
}
