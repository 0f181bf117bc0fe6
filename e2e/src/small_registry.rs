//! An image registry with small images, each of a root file system of its own, behind a login if the test wants one. Used by tests of images
//! that accounts name. Ends when dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use base::IgnorePoison;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::registry::Content;

const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The registry and its tasks.
pub struct SmallRegistry {
    port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    /// By name and tag: `app:1`.
    images: Mutex<BTreeMap<String, Arc<Content>>>,
    /// The value of the header `Authorization`.
    login: Option<&'static str>,
    requests: Mutex<Vec<String>>,
}

impl SmallRegistry {
    /// Without a login, or with the only accepted value of the header `Authorization`.
    pub async fn start(login: Option<&'static str>) -> Result<Self> {
        let shared = Arc::new(Shared { images: Mutex::default(), login, requests: Mutex::default() });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let mut tasks = JoinSet::new();
        let serving = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // A client that disconnects early is not an error of the registry.
                connections.spawn(async move { shared.answer(stream).await.unwrap_or_default() });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, shared, _tasks: tasks })
    }

    /// `HOST:PORT`, as references have it.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.host())
    }

    /// Adds an image with a file `/mark`, or replaces it. Returns its digest.
    pub fn push(&self, name: &str, mark: &str) -> Result<String> {
        let content = Content::with_mark(mark)?;
        let digest = content.manifest_digest.clone();
        self.shared.images().insert(name.to_owned(), Arc::new(content));
        Ok(digest)
    }

    /// How many requests had a part in their first line.
    pub fn count(&self, part: &str) -> usize {
        let requests = self.shared.requests.lock().ignore_poison();
        requests.iter().filter(|line| line.contains(part)).count()
    }
}

impl Shared {
    fn images(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Content>>> {
        self.images.lock().ignore_poison()
    }

    /// Serves one request per connection.
    async fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let line = head.lines().next().unwrap_or_default().to_owned();
        self.requests.lock().ignore_poison().push(line.clone());
        let given = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("authorization").then(|| value.trim())
        });
        let path = line.split(' ').nth(1).unwrap_or_default();
        let (status, headers, body) = match self.found(path) {
            _ if self.login.is_some() && self.login != given => {
                ("401 Unauthorized", "WWW-Authenticate: Basic realm=\"test\"\r\n".to_owned(), Vec::new())
            }
            Some((kind, body)) => ("200 OK", format!("Content-Type: {kind}\r\n"), body),
            None => ("404 Not Found", String::new(), Vec::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.shutdown().await
    }

    /// The type and the content of a path: `/v2/`, `/v2/NAME/manifests/TAG` or `/v2/NAME/blobs/DIGEST`.
    fn found(&self, path: &str) -> Option<(&'static str, Vec<u8>)> {
        if path.trim_end_matches('/') == "/v2" {
            return Some(("application/json", b"{}".to_vec()));
        }
        let (place, which) = path.strip_prefix("/v2/")?.rsplit_once('/')?;
        let (name, kind) = place.rsplit_once('/')?;
        let images = self.images();
        let own =
            images.iter().filter(|(tagged, _)| tagged.rsplit_once(':').is_some_and(|(of, _)| of == name));
        let own: Vec<_> = own.map(|(tagged, content)| (tagged.as_str(), content)).collect();
        if kind == "manifests" {
            let tagged = format!("{name}:{which}");
            let is_meant =
                |(tag, content): &&(&str, &Arc<Content>)| *tag == tagged || content.manifest_digest == which;
            return own.iter().find(is_meant).map(|(_, content)| content.manifest());
        }
        own.iter().find_map(|(_, content)| content.blob(which))
    }
}
