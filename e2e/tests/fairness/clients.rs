//! Attacks by requests: each function starts tasks that repeat them until the attack ends, and says what they do.
//!
//! The tasks ignore refusals: an attacker may be refused.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e::service::{Client, SANDBOXES, Service};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use crate::attack::{Attacker, Work};
use crate::outside::{LEARNT, PREFIX};
use crate::programs::{BUSY, CONNECTIONS};
use crate::victim::text;

/// Files and bodies of uploads.
const FILE_BYTES: usize = 16 << 20;
/// Streams of HTTP/2 on one connection; the service allows 256.
const STREAMS: usize = 200;
const NAMES: usize = 99_000;
/// Clients that read at the same time, and what they list.
const READERS: usize = 256;
const TERMINATED: usize = 100;
const POSTS: usize = 300;

/// Repeats a request in a number of tasks, each with a connection of its own.
pub fn repeat<F>(
    attacker: &mut Attacker,
    tasks: usize,
    request: impl Fn(Client, usize) -> F + Clone + Send + 'static,
) where
    F: Future<Output = Result<()>> + Send,
{
    for number in 0..tasks {
        let (client, request) = (attacker.client.with_own_connections(), request.clone());
        attacker.tasks.spawn(async move {
            loop {
                // A refusal is no reason to stop, and none to spin.
                if request(client.clone(), number).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
}

async fn sandboxes(attacker: &mut Attacker, count: usize) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(attacker.create().await?);
    }
    Ok(ids)
}

pub fn executions(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let ids = sandboxes(attacker, 4).await?;
        repeat(attacker, 12, move |client, number| {
            let path = format!("{SANDBOXES}/{}/execute", ids[number % ids.len()]);
            async move {
                client.post(&path, &json!({ "command": "true" })).await?;
                Ok(())
            }
        });
        Ok("12 clients execute `true` in 4 sandboxes".to_owned())
    })
}

pub fn creates(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let body = crate::victim::body(attacker.isolation);
        repeat(attacker, 2, move |client, _| {
            let body = body.clone();
            async move {
                let created = client.post(SANDBOXES, &body).await?.is(201)?;
                client.delete(&format!("{SANDBOXES}/{}", text(&created["id"])?)).await?;
                Ok(())
            }
        });
        Ok("2 clients create and terminate sandboxes".to_owned())
    })
}

pub fn uploads(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let ids = sandboxes(attacker, 2).await?;
        repeat(attacker, 8, move |client, number| {
            let path = format!("{SANDBOXES}/{}/files?path=f{number}", ids[number % ids.len()]);
            async move {
                let call = client.call(Method::PUT, &path);
                call.body("application/octet-stream", vec![b'x'; FILE_BYTES]).send().await?;
                Ok(())
            }
        });
        Ok("8 clients upload 16 MB at a time".to_owned())
    })
}

pub fn inputs(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let ids = sandboxes(attacker, 4).await?;
        let input = "x".repeat(FILE_BYTES - 1000);
        repeat(attacker, 24, move |client, number| {
            let path = format!("{SANDBOXES}/{}/execute", ids[number % ids.len()]);
            let body = json!({ "command": "cat > /dev/null", "stdin": input });
            async move {
                client.post(&path, &body).await?;
                Ok(())
            }
        });
        Ok("24 clients send commands with 16 MB of input".to_owned())
    })
}

pub fn outputs(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let ids = sandboxes(attacker, 4).await?;
        repeat(attacker, 12, move |client, number| {
            let path = format!("{SANDBOXES}/{}/execute", ids[number % ids.len()]);
            let body = json!({ "command": "head -c 16000000 /dev/zero | tr '\\0' x" });
            async move {
                client.post(&path, &body).await?;
                Ok(())
            }
        });
        Ok("12 clients read 16 MB of output at a time".to_owned())
    })
}

/// Terminals whose output nobody reads.
pub fn terminals(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let ids = sandboxes(attacker, 2).await?;
        let key = attacker.client.key().to_owned();
        let builder = sandboxd_client::Client::builder().url(format!("https://{}", attacker.service.address));
        let library =
            builder.key(key).retries(0).certificate_file(attacker.service.certificate_file()?).build()?;
        let mut held = Vec::new();
        for id in ids {
            for _ in 0..3 {
                held.push(library.sandbox(&id)?.terminal().command("yes").await?);
            }
        }
        let opened = held.len();
        attacker.tasks.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        Ok(format!("{opened} terminals that print and are not read"))
    })
}

/// Streams of events that nobody reads, while the account posts events.
pub fn event_streams(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let id = attacker.create().await?;
        let path = format!("{SANDBOXES}/{id}/events");
        let mut held = Vec::new();
        for _ in 0..400 {
            let client = attacker.client.with_own_connections();
            held.push(client.call(Method::GET, &path).stream().await?);
        }
        let streams = held.len();
        attacker.tasks.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        posts(attacker, id);
        Ok(format!("{streams} streams that nobody reads, a client posts events"))
    })
}

pub fn events(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let id = attacker.create().await?;
        posts(attacker, id);
        Ok("a client posts 100 events at a time".to_owned())
    })
}

fn posts(attacker: &mut Attacker, id: String) {
    let event = json!({ "type": "agent.thinking", "runId": "run", "data": { "text": "x".repeat(2000) } });
    let events = json!(vec![event; 100]);
    repeat(attacker, 1, move |client, _| {
        let (path, events) = (format!("{SANDBOXES}/{id}/events"), events.clone());
        async move {
            client.post(&path, &events).await?;
            Ok(())
        }
    });
}

/// The most expensive lists: pages of sandboxes with many tags, and of events, as far behind as there are some.
pub fn lists(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let mut tagged = crate::victim::body(attacker.isolation);
        tagged["metadata"] = (0..20).map(|number| (format!("tag{number}"), json!("same"))).collect();
        for _ in 0..TERMINATED {
            let created = attacker.client.post(SANDBOXES, &tagged).await?.is(201)?;
            attacker.client.delete(&format!("{SANDBOXES}/{}", text(&created["id"])?)).await?.is(200)?;
        }
        let id = attacker.create().await?;
        let event = json!({ "type": "agent.thinking", "runId": "run", "data": { "text": "x".repeat(100) } });
        let events = json!(vec![event; 100]);
        for _ in 0..POSTS {
            attacker.client.post(&format!("{SANDBOXES}/{id}/events"), &events).await?.is(201)?;
        }
        let tags: Vec<String> = (0..20).map(|number| format!("metadata.tag{number}=same")).collect();
        let sandboxes = format!("{SANDBOXES}?limit=100&state=terminated&{}", tags.join("&"));
        let far = POSTS * 100 - 100;
        let all = format!("/v1/events?type=agent.*&type=exec.*&type=sandbox.*&limit=100&offset={far}");
        for path in [&sandboxes, &all] {
            attacker.client.get(path).await?.is(200)?;
        }
        repeat(attacker, READERS, move |client, number| {
            let path = if number % 2 == 0 { sandboxes.clone() } else { all.clone() };
            async move {
                client.get(&path).await?;
                Ok(())
            }
        });
        Ok(format!(
            "{READERS} clients list {TERMINATED} sandboxes by 20 tags, and the last of {} events",
            POSTS * 100
        ))
    })
}

/// Requests that occupy blocking threads: outputs of detached executions, snapshots, and large idempotency records.
pub fn blocking(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let id = attacker.create().await?;
        let path = format!("{SANDBOXES}/{id}");
        let detached = json!({ "command": "head -c 12000000 /dev/urandom | base64", "detached": true });
        let started = attacker.client.post(&format!("{path}/execute"), &detached).await?.is(201)?;
        let output = format!("{path}/executions/{}/output", text(&started["executionId"])?);
        repeat(attacker, READERS, move |client, number| {
            let (path, output) = (path.clone(), output.clone());
            async move {
                match number % 8 {
                    0 => {
                        let taken = client.post(&format!("{path}/snapshots"), &json!({})).await?.is(201)?;
                        client.delete(&format!("/v1/snapshots/{}", text(&taken["id"])?)).await?.is(200)?;
                    }
                    1 => {
                        let command = json!({ "command": "head -c 3000000 /dev/urandom | base64" });
                        let key = format!("{:x}", rand_key());
                        let call = client.call(Method::POST, &format!("{path}/execute")).json(&command);
                        call.header("idempotency-key", &key).send().await?;
                    }
                    _ => drop(client.get(&output).await?),
                }
                Ok(())
            }
        });
        Ok(format!("{READERS} clients read 16 MB of a log each, take snapshots, and store responses"))
    })
}

/// Different for each call.
fn rand_key() -> u128 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos())
}

/// Responses over HTTP/2 that the client gives no window, beside a stream that is read.
pub fn windows(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let id = attacker.create().await?;
        let file = format!("{SANDBOXES}/{id}/files?path=big");
        let call = attacker.client.call(Method::PUT, &file);
        call.body("application/octet-stream", vec![b'x'; FILE_BYTES]).send().await?.is(200)?;
        let mut responses = Vec::new();
        for _ in 0..4 {
            let stream = TokioIo::new(attacker.service.tls("localhost", &["h2"]).await?);
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let (mut sender, connection) = builder.initial_stream_window_size(0).handshake(stream).await?;
            attacker.tasks.spawn(async move { drop(connection.await) });
            for _ in 0..STREAMS {
                let request = Request::get(format!("https://localhost{file}"))
                    .header("authorization", attacker.client.authorization())
                    .body(Empty::<Bytes>::new())?;
                responses.push(sender.send_request(request));
            }
        }
        let streams = responses.len();
        attacker.tasks.spawn(async move {
            let _answers = futures_util::future::join_all(responses).await;
            std::future::pending::<()>().await;
        });
        Ok(format!("{streams} responses of 16 MB with a window of 0"))
    })
}

/// Requests to a port whose responses nobody reads.
pub fn port_requests(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let id = attacker.create().await?;
        let path = format!("{SANDBOXES}/{id}");
        let program = crate::programs::program(crate::programs::SERVER);
        let call = attacker.client.call(Method::PUT, &format!("{path}/files?path=server.pl"));
        call.body("application/octet-stream", program.into_bytes()).send().await?.is(200)?;
        let command = json!({ "command": "perl server.pl > server.log 2>&1 & sleep 0.5" });
        attacker.client.post(&format!("{path}/execute"), &command).await?.is(200)?;
        let port = json!({ "port": 8080, "visibility": "public" });
        let exposed = attacker.client.post(&format!("{path}/ports"), &port).await?.is(201)?;
        let url = text(&exposed["url"])?;
        let host = url.strip_prefix("https://").and_then(|host| host.rsplit_once(':'));
        let host = host.context("a URL without a port")?.0.to_owned();
        let mut held = Vec::new();
        for _ in 0..300 {
            let stream = attacker.service.tls(&host, &["http/1.1"]).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            attacker.tasks.spawn(async move { drop(connection.await) });
            let request = Request::get("/").header("host", &host).body(Empty::<Bytes>::new())?;
            held.push((sender.send_request(request).await?, sender));
        }
        let requests = held.len();
        attacker.tasks.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        Ok(format!("{requests} unread pages of 2 MB"))
    })
}

/// Connections through the proxy of a sandbox whose policy is default deny.
pub fn proxy(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let mut body = crate::victim::body(attacker.isolation);
        body["network"] = json!({ "egress": { "default": "deny", "allow": ["some.example"] } });
        let created = attacker.client.post(SANDBOXES, &body).await?.is(201)?;
        let id = text(&created["id"])?;
        attacker.sandboxes.push(id.clone());
        Ok(attacker.start(&id, CONNECTIONS, &format!("{PREFIX}.9 9000")).await?.what)
    })
}

/// Lookups of names whose addresses the packet filter has to learn, of sandboxes whose policy has a wildcard.
pub fn lookups(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let mut body = crate::victim::body(attacker.isolation);
        body["network"] = json!({ "egress": { "default": "deny", "allow": [format!("*.{LEARNT}")] } });
        let mut held = Vec::new();
        for _ in 0..8 {
            let created = attacker.client.post(SANDBOXES, &body).await?.is(201)?;
            let id = text(&created["id"])?;
            attacker.sandboxes.push(id.clone());
            held.push(attacker.start(&id, BUSY, "lookups 4").await?);
        }
        Ok(format!("{} sandboxes, each with {} that look up names", held.len(), held[0].what))
    })
}

/// Programs that exceed the memory of their sandbox, again and again.
pub fn memory_limits(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let ids = sandboxes(attacker, 2).await?;
        if attacker.isolation == api::Isolation::Container {
            for id in &ids {
                attacker.start(id, BUSY, "memory_limit 8").await?;
            }
            return Ok(format!("{} sandboxes with 8 programs that are killed", ids.len()));
        }
        repeat(attacker, 2, move |client, number| {
            let path = format!("{SANDBOXES}/{}", ids[number % ids.len()]);
            let fill =
                json!({ "command": "perl -e 'push @bytes, q(x) x (1 << 24) while 1'", "timeoutMs": 20_000 });
            async move {
                // This ends all processes of the sandbox, which is paused then.
                client.post(&format!("{path}/execute"), &fill).await?;
                client.post(&format!("{path}/resume"), &json!({})).await?;
                Ok(())
            }
        });
        Ok("2 sandboxes that end for lack of memory and are resumed".to_owned())
    })
}

/// One request of E2B's API whose response names each of many files.
pub fn listings(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let key = e2b_key(attacker).await?;
        let body = json!({ "templateID": Service::image(), "timeout": 300, "secure": false });
        let headers = [("content-type", "application/json"), ("x-api-key", key.as_str())];
        let created = post(&attacker.service, "localhost", "/sandboxes", &headers, body.to_string()).await?;
        let created: Value = serde_json::from_slice(&created)?;
        let compact = text(&created["sandboxID"])?;
        let id = format!("sb_{}", compact.trim_start_matches("sb"));
        // The sandbox is one of the account that the key belongs to.
        let native = attacker.service.key(E2B_ACCOUNT, "read,execute,write")?;
        attacker.service.client_with_new_key("fairness-later", "read").await?;
        attacker.client = attacker.service.client(&native)?;
        attacker.sandboxes.push(id.clone());
        let fill = json!({ "timeoutMs": 60_000, "command": format!(
            "mkdir -p /tmp/many && cd /tmp/many && seq -f 'a-file-with-a-long-name-%g' {NAMES} | xargs touch"
        ) });
        let filled = attacker.client.post(&format!("{SANDBOXES}/{id}/execute"), &fill).await?.is(200)?;
        ensure!(filled["exitCode"] == 0, "the files could not be created: {filled}");
        let host = format!("49983-{compact}.sandboxes.localhost");
        // Once before, so that the row says whether it is answered.
        let first = list(&attacker.service, &host).await.err();
        for _ in 0..16 {
            let (service, host) = (Arc::clone(&attacker.service), host.clone());
            attacker.tasks.spawn(async move {
                loop {
                    if list(&service, &host).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            });
        }
        Ok(match first {
            None => format!("16 clients list {NAMES} names"),
            Some(error) => format!("16 clients list {NAMES} names; refused: {error:#}"),
        })
    })
}

const E2B_ACCOUNT: &str = "fairness-e2b";

async fn e2b_key(attacker: &Attacker) -> Result<String> {
    let arguments =
        ["key", "create", "--account", E2B_ACCOUNT, "--scopes", "read,execute,write", "--format", "e2b"];
    let output = attacker.service.program()?.args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The service reads keys in the order in which they were created.
    attacker.service.client_with_new_key("fairness-later", "read").await?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// One listing by E2B's API, read to its end.
async fn list(service: &Service, host: &str) -> Result<()> {
    let body = json!({ "path": "/tmp/many", "depth": 1 }).to_string();
    // The user `root`.
    let headers = [("content-type", "application/json"), ("authorization", "Basic cm9vdDo=")];
    post(service, host, "/filesystem.Filesystem/ListDir", &headers, body).await?;
    Ok(())
}

/// The body of a response to a request to a host of the service, whose API has another form of errors.
async fn post(
    service: &Service,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Result<Bytes> {
    let stream = TokioIo::new(service.tls(host, &["http/1.1"]).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request = headers.iter().fold(Request::post(path).header("host", host), |request, (name, value)| {
        request.header(*name, *value)
    });
    let response = sender.send_request(request.body(Full::<Bytes>::from(body))?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "{path}: {status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
