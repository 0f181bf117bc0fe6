//! Reachability: exposed ports from outside, and destinations that policies allow from inside.

use e2e::internet::{Site, StreamMode};
use e2e::service::{Client, HttpResponse, Service, read_answer};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::{
    Installation, action_path, create_sandbox, number, output, run_action, run_command, small, state, text,
    wait_until, with, write,
};

const PROGRAM: &str = include_str!("../service/ports/portal.pl");
const PRIVATE: u16 = 8080;
const PUBLIC: u16 = 8081;
/// The port of the echo server.
const ECHO: u16 = 2526;

pub struct Connectivity {
    ports: Ports,
    policies: Policies,
}

impl Connectivity {
    pub async fn prepare(installation: &Installation, client: &Client) -> Self {
        Self {
            ports: Ports::prepare(installation, client).await,
            policies: Policies::prepare(installation, client).await,
        }
    }

    pub async fn verify(&self, installation: &Installation, client: &Client) {
        self.ports.verify(&installation.service, client).await;
        self.policies.verify(installation, client).await;
    }
}

/// A sandbox with a private and a public port.
struct Ports {
    id: String,
    hosts: [String; 2],
    token: String,
}

impl Ports {
    async fn prepare(installation: &Installation, client: &Client) -> Self {
        let id = create_sandbox(client, &small()).await;
        write(client, &id, "portal.pl", PROGRAM.as_bytes()).await;
        for port in [PRIVATE, PUBLIC] {
            output(client, &id, &format!("setsid perl portal.pl {port} </dev/null >/dev/null 2>&1 &")).await;
            let listens = format!("curl -s -m 5 http://127.0.0.1:{port}/");
            wait_until("the program listens", async || {
                run_command(client, &id, json!({ "command": &listens })).await["exitCode"] == 0
            })
            .await;
        }
        let exposed = async |port: u16, visibility: &str| {
            let body = json!({ "port": port, "visibility": visibility });
            let port = client.post(&action_path(&id, "ports"), &body).await.unwrap().is(201).unwrap();
            let url = text(&port["url"]);
            url.trim_start_matches("https://").rsplit_once(':').unwrap().0.to_owned()
        };
        let hosts = [exposed(PRIVATE, "private").await, exposed(PUBLIC, "public").await];
        let token = token(client, &id).await;
        let ports = Self { id, hosts, token };
        ports.work(&installation.service, &ports.token).await;
        ports
    }

    async fn work(&self, service: &Service, token: &str) {
        for (host, port) in self.hosts.iter().zip([PRIVATE, PUBLIC]) {
            let sent = if port == PRIVATE { Some(token) } else { None };
            let answer = get(service, host, sent).await;
            assert_eq!((answer.status, answer.text()), (200, format!("it is port {port}")));
        }
        let refused = get(service, &self.hosts[0], None).await;
        assert_eq!(refused.status, 401, "{}", refused.text());
    }

    async fn verify(&self, service: &Service, client: &Client) {
        self.work(service, &self.token).await;
        self.work(service, &token(client, &self.id).await).await;
        run_action(client, &self.id, "pause").await;
        self.work(service, &self.token).await;
        assert_eq!(state(client, &self.id).await, "running");
        client.delete(&action_path(&self.id, &format!("ports/{PUBLIC}"))).await.unwrap().is(200).unwrap();
        assert_eq!(get(service, &self.hosts[1], None).await.status, 404);
    }
}

async fn token(client: &Client, id: &str) -> String {
    let path = action_path(id, &format!("ports/{PRIVATE}/token"));
    text(&client.post(&path, &json!({})).await.unwrap().is(201).unwrap()["token"])
}

/// A request through a port.
async fn get(service: &Service, host: &str, token: Option<&str>) -> HttpResponse {
    let mut stream = service.tls(host, &["http/1.1"]).await.unwrap();
    let token = token.map(|token| format!("X-Sandbox-Token: {token}\r\n")).unwrap_or_default();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    read_answer(&mut stream).await.unwrap()
}

/// A sandbox that may connect only to a listed name, and one without restrictions.
struct Policies {
    strict: String,
    open: String,
    listed: Site,
    other: Site,
    unseen: Site,
}

impl Policies {
    async fn prepare(installation: &Installation, client: &Client) -> Self {
        let [listed, other, unseen] = ["listed", "other", "unseen"].map(|name| installation.site(name));
        installation.internet.stream_at(other.address, ECHO, StreamMode::Echo).unwrap();
        let egress = json!({ "egress": { "default": "deny", "allow": [listed.name] } });
        let strict = create_sandbox(client, &with(small(), "network", egress)).await;
        let open = create_sandbox(client, &small()).await;
        let policies = Self { strict, open, listed, other, unseen };
        policies.hold(client).await;
        policies.work(client).await;
        let tries = format!(
            "setsid bash -c 'while :; do curl -s -m 1 http://{}/; echo x >> /tries; done' </dev/null >/dev/null 2>&1 &",
            policies.unseen.address
        );
        output(client, &policies.strict, &tries).await;
        policies
    }

    /// The page of a site, or an empty string if it is unreachable.
    async fn page(client: &Client, id: &str, url: &str) -> String {
        text(
            &run_command(client, id, json!({ "command": &format!("curl -sk -m 5 {url}/hello") })).await["stdout"],
        )
    }

    async fn work(&self, client: &Client) {
        for (id, site, is_reached) in [
            (&self.strict, &self.listed, true),
            (&self.strict, &self.other, false),
            (&self.open, &self.listed, true),
            (&self.open, &self.other, true),
        ] {
            for scheme in ["http", "https"] {
                let page = Self::page(client, id, &format!("{scheme}://{}", site.name)).await;
                assert_eq!(page.starts_with("hello"), is_reached, "{id}: {scheme}://{}: {page:?}", site.name);
            }
        }
        let page = Self::page(client, &self.open, "http://169.254.169.254").await;
        assert_eq!(page, "", "a metadata service is reached");
    }

    /// Opens a connection of the open sandbox, which bypasses the daemon, and uses it when `/go` exists.
    async fn hold(&self, client: &Client) {
        let command = format!(
            "setsid bash -c 'exec 3<>/dev/tcp/{}/{ECHO}; touch /held; until [ -e /go ]; do sleep 0.05; done; \
             echo again >&3; head -n 1 <&3 > /got' </dev/null >/dev/null 2>&1 & until [ -e /held ]; do sleep 0.05; done",
            self.other.address
        );
        output(client, &self.open, &command).await;
    }

    async fn verify(&self, installation: &Installation, client: &Client) {
        self.work(client).await;
        output(client, &self.open, "touch /go").await;
        wait_until("the held connection answers", async || {
            run_command(client, &self.open, json!({ "command": "cat /got" })).await["stdout"] == "again\n"
        })
        .await;
        let tries = async || {
            run_command(client, &self.strict, json!({ "command": "wc -l < /tries" })).await["stdout"].clone()
        };
        let before = tries().await;
        wait_until("the sandbox connects again", async || tries().await != before).await;
        let packets = installation.internet.packets().to(self.unseen.address);
        assert!(packets.is_empty(), "a closed destination was reached: {packets:?}");
        let network = client.get(&action_path(&self.strict, "network")).await.unwrap().is(200).unwrap();
        assert!(number(&network["usage"]["bytesIn"]) > 0, "{network}");
        self.change(client, &[&self.listed, &self.other]).await;
        let page = Self::page(client, &self.strict, &format!("http://{}", self.other.name)).await;
        assert!(page.starts_with("hello"), "{page}");
        self.change(client, &[&self.listed]).await;
        self.work(client).await;
        let page = client.get(&format!("/v1/events?sandboxId={}&type=network.*", self.strict)).await.unwrap();
        let page: Value = page.is(200).unwrap();
        assert!(number(&page["pagination"]["total"]) > 2, "{page}");
    }

    async fn change(&self, client: &Client, sites: &[&Site]) {
        let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
        let call = client.call(Method::PATCH, &action_path(&self.strict, "network"));
        call.json(&json!({ "egress": { "allow": names } })).send().await.unwrap().is(200).unwrap();
    }
}
