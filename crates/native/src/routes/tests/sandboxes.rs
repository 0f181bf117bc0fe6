//! Create, list, get, pause, resume, terminate.

use admission::captured_log::CapturedLog;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use driver::fake::{DriverOp, Fault};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::fixture::{Answer, FIT, Fixture, HANGING, IMAGE, bearer, json_request, request};

const ALL: &str = "/v1/sandboxes";

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn path(id: &str) -> String {
    format!("/v1/sandboxes/{id}")
}

#[tokio::test]
async fn the_log_names_the_sandboxes_that_a_request_creates() {
    let fixture = Fixture::new().await;
    let log = CapturedLog::default();
    let _logging = log.begin();
    let created = fixture.post(ALL, json!({"image": IMAGE})).await;
    let id = created.json["id"].as_str().unwrap();
    assert_eq!(log.requests().pop().unwrap()["fields"]["sandbox"], id);
    let with_key = || {
        let mut request = json_request(ALL, json!({"image": IMAGE}).to_string());
        request.headers_mut().insert("idempotency-key", "once".parse().unwrap());
        request
    };
    for _ in 0..2 {
        let created = fixture.ask(with_key()).await;
        assert_eq!(log.requests().pop().unwrap()["fields"]["sandbox"], created.json["id"]);
    }
    let forked = fixture.post(&format!("{}/fork", path(id)), json!({"count": 2})).await;
    let ids: Vec<_> =
        forked.json["data"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    let line = log.requests().pop().unwrap();
    assert_eq!((&line["fields"]["sandbox"], &line["fields"]["forks"]), (&json!(id), &json!(ids.join(" "))));
}

#[tokio::test]
async fn a_created_sandbox_is_shown_by_get_and_list() {
    let fixture = Fixture::new().await;
    let body = json!({"image": IMAGE, "metadata": {"userId": "7"}, "env": {"A": "1"},
        "network": {"egress": {"allow": ["example.com"], "default": "deny"}, "ingress": {"allowPorts": [3000]}}});
    let created = fixture.post(ALL, body).await;
    assert_eq!(created.status, StatusCode::CREATED);
    let id = created.json["id"].as_str().unwrap();
    assert_eq!(created.header("location"), path(id));
    assert_eq!(created.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(created.json["state"], "running");
    assert_eq!(created.json["resources"], json!({"cpu": 2, "memoryMb": 4096, "diskMb": 10_240}));
    assert_eq!(created.json["network"]["ingress"], json!({"allowPorts": [3000]}));
    assert!(created.json["startedAt"].is_string() && created.json["createdAt"].is_string());
    assert_eq!(
        keys(&created.json),
        [
            "autoResume",
            "createdAt",
            "env",
            "expiresAt",
            "id",
            "idleTimeoutMs",
            "image",
            "isolation",
            "metadata",
            "network",
            "onTimeout",
            "resources",
            "startedAt",
            "state",
            "timeoutMs",
            "workdir"
        ]
    );
    let got = fixture.call("GET", &path(id)).await;
    assert_eq!((got.status, &got.json), (StatusCode::OK, &created.json));
    let head = fixture.call("HEAD", &path(id)).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    let listed =
        fixture.call("GET", "/v1/sandboxes?metadata.userId=7&state=running&image=test%3A1&x=1").await;
    assert_eq!(listed.json["pagination"], json!({"total": 1, "limit": 20, "offset": 0, "hasMore": false}));
    let item = &listed.json["data"][0];
    assert_eq!(keys(item), ["createdAt", "id", "image", "resources", "startedAt", "state"]);
    assert_eq!((&item["id"], &item["startedAt"]), (&created.json["id"], &created.json["startedAt"]));
    let detailed = fixture.call("GET", "/v1/sandboxes?details=true").await;
    let item = &detailed.json["data"][0];
    for name in ["isolation", "metadata", "expiresAt"] {
        assert_eq!(item[name], created.json[name], "{name}");
    }
    assert_eq!(fixture.call("GET", "/v1/sandboxes?details=1").await.status, StatusCode::BAD_REQUEST);
    let other = fixture.call("GET", "/v1/sandboxes?metadata.userId=8&limit=1&offset=5").await;
    assert_eq!(
        other.json,
        json!({"data": [], "pagination": {"total": 0, "limit": 1, "offset": 5, "hasMore": false}})
    );
}

#[tokio::test]
async fn a_timeout_is_changed_by_put() {
    let fixture = Fixture::new().await;
    let body = json!({"image": IMAGE, "onTimeout": "pause", "autoResume": false, "idleTimeoutMs": 0});
    let created = fixture.post(ALL, body).await;
    assert_eq!((&created.json["onTimeout"], &created.json["autoResume"]), (&json!("pause"), &json!(false)));
    let one = path(created.json["id"].as_str().unwrap());
    let timeout = format!("{one}/timeout");
    let put = async |path: &str, body: &'static str| {
        let request = request("PUT", path).header("content-type", "application/json");
        fixture.ask(request.body(Body::from(body)).unwrap()).await
    };

    let longer = put(&timeout, r#"{"timeoutMs": 86400000}"#).await;
    assert_eq!((longer.status, &longer.json["timeoutMs"]), (StatusCode::OK, &json!(86_400_000)));
    assert!(longer.json["expiresAt"].as_str() > created.json["expiresAt"].as_str());
    assert_eq!(fixture.call("GET", &one).await.json, longer.json);
    for (body, code) in [
        ("{}", "INVALID_REQUEST"),
        (r#"{"timeoutMs": null}"#, "INVALID_REQUEST"),
        (r#"{"timeoutMs": "1"}"#, "INVALID_REQUEST"),
        (r#"{"timeoutMs": -1}"#, "INVALID_CONFIG"),
        (r#"{"timeoutMs": 86400001}"#, "INVALID_CONFIG"),
    ] {
        let refused = put(&timeout, body).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, code), "{body}");
    }
    assert_eq!(fixture.call("GET", &one).await.json, longer.json);

    assert_eq!(put(&timeout, r#"{"timeoutMs": 0}"#).await.status, StatusCode::OK);
    let begin = std::time::Instant::now();
    let paused = loop {
        let seen = fixture.call("GET", &one).await.json;
        if seen["state"] == "paused" {
            break seen;
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{seen}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!((paused.get("expiresAt"), &paused["timeoutMs"]), (None, &json!(86_400_000)));
    let refused =
        fixture.post(&format!("{one}/execute"), json!({"command": "true", "autoResume": true})).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "INVALID_STATE"));
    assert_eq!(fixture.call("POST", &format!("{one}/resume")).await.status, StatusCode::OK);
    let resumed = fixture.call("GET", &one).await.json;
    assert!(resumed["expiresAt"].as_str() > paused["pausedAt"].as_str());
    let foreign = put("/v1/sandboxes/sb_aaaaaaaaaaaaaaaaaaaa/timeout", r#"{"timeoutMs": 1}"#).await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_running_sandbox_has_metrics() {
    let fixture = Fixture::new().await;
    let one = path(&fixture.create().await);
    let metrics = async |query: &str| fixture.call("GET", &format!("{one}/metrics{query}")).await;
    let begin = std::time::Instant::now();
    let samples = loop {
        let found = metrics("").await;
        assert_eq!(found.status, StatusCode::OK, "{}", found.text);
        let samples = found.json["data"].as_array().unwrap().clone();
        if samples.len() >= 2 {
            break samples;
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{}", found.text);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let first = &samples[0];
    assert!(first["timestamp"].as_str() < samples[1]["timestamp"].as_str());
    assert!(first["cpuUsedPercent"].as_f64().unwrap() > 0.0);
    assert_eq!((&first["cpuCount"], &first["memoryUsedBytes"]), (&json!(2), &json!(10 << 20)));
    assert_eq!(
        (&first["memoryCacheBytes"], &first["memoryTotalBytes"]),
        (&json!(2 << 20), &json!(4096_u64 << 20))
    );
    assert_eq!(
        (&first["diskUsedBytes"], &first["diskTotalBytes"]),
        (&json!(3 << 20), &json!(10_240_u64 << 20))
    );
    assert_eq!(metrics("?end=2000-01-01T00:00:00Z").await.json, json!({"data": []}));
    assert_eq!(metrics("?start=2100-01-01T00:00:00Z").await.json, json!({"data": []}));
    let at = first["timestamp"].as_str().unwrap();
    assert_eq!(metrics(&format!("?start={at}&end={at}")).await.json["data"], json!([first]));
    assert_eq!(metrics("?start=1").await.code(), "INVALID_REQUEST");

    // A paused sandbox keeps its samples and gets no new ones.
    assert_eq!(fixture.call("POST", &format!("{one}/pause")).await.status, StatusCode::OK);
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let paused = metrics("").await.json;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(paused["data"].as_array().unwrap().len() >= 2);
    assert_eq!(metrics("").await.json, paused);
    assert_eq!(fixture.call("DELETE", &one).await.status, StatusCode::OK);
    assert_eq!(metrics("").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_life_from_create_to_terminate() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let verb = |verb: &str| format!("/v1/sandboxes/{id}/{verb}");

    let refused = fixture.call("POST", &verb("resume")).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "INVALID_STATE"));
    assert_eq!((refused.detail("sandboxId"), refused.detail("state")), (id.as_str(), "running"));

    let paused = fixture.call("POST", &verb("pause")).await;
    assert_eq!(keys(&paused.json), ["id", "pausedAt", "runtimeDurationMs", "state"]);
    assert_eq!((paused.status, &paused.json["state"]), (StatusCode::OK, &json!("paused")));
    let shown = fixture.call("GET", &path(&id)).await;
    assert_eq!((&shown.json["state"], &shown.json["pausedAt"]), (&json!("paused"), &paused.json["pausedAt"]));
    let item = &fixture.call("GET", "/v1/sandboxes?state=paused").await.json["data"][0];
    assert_eq!(keys(item), ["createdAt", "id", "image", "pausedAt", "resources", "state"]);
    assert_eq!(fixture.call("POST", &verb("pause")).await.code(), "INVALID_STATE");

    let resumed = fixture.call("POST", &verb("resume")).await;
    assert_eq!(keys(&resumed.json), ["id", "pausedDurationMs", "resumedAt", "state"]);
    assert_eq!((resumed.status, &resumed.json["state"]), (StatusCode::OK, &json!("running")));

    let ended = fixture.call("DELETE", &path(&id)).await;
    assert_eq!(keys(&ended.json), ["id", "state", "terminatedAt", "totalRuntimeMs"]);
    assert_eq!((ended.status, &ended.json["state"]), (StatusCode::OK, &json!("terminated")));
    for (method, path) in
        [("GET", path(&id)), ("DELETE", path(&id)), ("POST", verb("pause")), ("POST", verb("resume"))]
    {
        let gone = fixture.call(method, &path).await;
        assert_eq!(
            (gone.status, gone.code()),
            (StatusCode::NOT_FOUND, "SANDBOX_NOT_FOUND"),
            "{method} {path}"
        );
        assert_eq!((gone.detail("sandboxId"), gone.detail("state")), (id.as_str(), "terminated"));
        assert_eq!(
            (gone.detail("reason"), &gone.json["error"]["details"]["terminatedAt"]),
            ("deleted", &ended.json["terminatedAt"])
        );
    }
    let executed = fixture.execute(&id, json!({"command": "true"})).await;
    assert_eq!((executed.code(), executed.detail("state")), ("SANDBOX_NOT_FOUND", "terminated"));
    let listed = fixture.call("GET", "/v1/sandboxes?state=terminated").await;
    assert_eq!(
        keys(&listed.json["data"][0]),
        ["createdAt", "id", "image", "resources", "state", "terminatedAt"]
    );
    assert_eq!(fixture.call("GET", ALL).await.json["pagination"]["total"], 1);
}

#[tokio::test]
async fn sandboxes_of_other_accounts_are_not_found() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    for (method, path) in [
        ("GET", path(&id)),
        ("POST", format!("/v1/sandboxes/{id}/pause")),
        ("POST", format!("/v1/sandboxes/{id}/resume")),
        ("DELETE", path(&id)),
    ] {
        let asked = Request::builder().method(method).uri(&path).header("authorization", bearer(2));
        let answer = fixture.ask(asked.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.json["error"]["details"], json!({"sandboxId": id}), "{method} {path}");
    }
    let listed = Request::builder().uri(ALL).header("authorization", bearer(2)).body(Body::empty()).unwrap();
    assert_eq!(fixture.ask(listed).await.json["pagination"]["total"], 0);
    assert_eq!(fixture.call("GET", &path(&id)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn pages_are_cut_where_the_query_says() {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, fixture.create().await);
    }
    let page = fixture.call("GET", "/v1/sandboxes?limit=2&offset=1").await;
    assert_eq!(page.json["pagination"], json!({"total": 5, "limit": 2, "offset": 1, "hasMore": true}));
    let shown: Vec<&str> =
        page.json["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!(shown, ids[1..3]);
    let last = fixture.call("GET", "/v1/sandboxes?limit=3&offset=2").await;
    assert_eq!(
        (&last.json["pagination"]["hasMore"], last.json["data"].as_array().unwrap().len()),
        (&json!(false), 3)
    );
}

fn keyed(body: &Value, key: &str) -> Request<Body> {
    let mut asked = json_request(ALL, body.to_string());
    asked.headers_mut().insert("idempotency-key", key.parse().unwrap());
    asked
}

#[tokio::test]
async fn concurrent_and_repeated_requests_with_one_key_create_one_sandbox() {
    let fixture = Fixture::new().await;
    let body = json!({"image": IMAGE});
    let answers = join_all((0..10).map(|_| fixture.ask(keyed(&body, "k")))).await;
    let again = fixture.ask(keyed(&json!({ "image": IMAGE }), "k")).await;
    assert_eq!(again.header("idempotency-replayed"), "true");
    for answer in answers.iter().chain([&again]) {
        assert_eq!((answer.status, &answer.text), (StatusCode::CREATED, &again.text));
        assert_eq!(answer.header("location"), path(again.json["id"].as_str().unwrap()));
    }
    assert_eq!(answers.iter().filter(|answer| answer.header("idempotency-replayed").is_empty()).count(), 1);
    assert_eq!(fixture.call("GET", ALL).await.json["pagination"]["total"], 1);
    let other = fixture.ask(keyed(&json!({"image": IMAGE, "timeoutMs": 5}), "k")).await;
    assert_eq!((other.status, other.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"));
    let bad = fixture.ask(keyed(&body, "a b")).await;
    assert!(bad.message().starts_with("header Idempotency-Key is 'a b'"), "{}", bad.message());
    // A refusal is recorded too, for the same body.
    let wrong = json!({"image": IMAGE, "resources": {"cpu": 3}});
    assert_eq!(fixture.ask(keyed(&wrong, "wrong")).await.header("idempotency-replayed"), "");
    let replayed = fixture.ask(keyed(&wrong, "wrong")).await;
    assert_eq!((replayed.code(), replayed.header("idempotency-replayed")), ("INVALID_CONFIG", "true"));
    assert_eq!(fixture.ask(keyed(&body, "wrong")).await.code(), "INVALID_REQUEST");
    assert_eq!(fixture.call("GET", ALL).await.json["pagination"]["total"], 1);
}

async fn with_image(fixture: &Fixture, image: &str) -> Answer {
    fixture.post(ALL, json!({ "image": image })).await
}

#[tokio::test]
async fn unavailable_images_have_distinct_errors() {
    let fixture = Fixture::new().await;
    let unknown = with_image(&fixture, "ubnutu").await;
    assert_eq!((unknown.status, unknown.code()), (StatusCode::BAD_REQUEST, "INVALID_CONFIG"));
    assert_eq!(
        unknown.message(),
        "image is 'ubnutu'; allowed: 'gone:1', 'hanging:1' or 'test:1'; no image has a similar name, the nearest images are: \
         'gone:1', 'test:1', 'hanging:1'; the operator allows it with: sandboxd image allow docker.io/library/ubnutu:latest"
    );
    assert_eq!((unknown.detail("field"), unknown.detail("nearest")), ("image", "gone:1"));
    assert_eq!(unknown.detail("allowCommand"), "sandboxd image allow docker.io/library/ubnutu:latest");
    let custom = with_image(&fixture, "custom").await;
    assert_eq!(custom.code(), "INVALID_CONFIG");
    assert!(custom.message().contains("which has no source on this service"), "{}", custom.message());
    let slow = with_image(&fixture, HANGING).await;
    assert_eq!((slow.status, slow.code()), (StatusCode::SERVICE_UNAVAILABLE, "RESOURCE_EXHAUSTED"));
    assert_eq!(
        (slow.header("retry-after"), slow.message()),
        ("10", "image 'hanging:1' is being pulled; try again in 10 s")
    );
    // A reference is pulled only if the operator allows it, and never a file of this host.
    let reference = with_image(&fixture, "rootfs:/etc").await;
    assert!(
        reference.message().starts_with("image is 'rootfs:/etc'; allowed: 'gone:1', "),
        "{}",
        reference.message()
    );
    assert_eq!(fixture.call("GET", ALL).await.json["pagination"]["total"], 0);
}

#[tokio::test]
async fn no_leave_of_the_operator_opens_files_of_the_host() {
    let fixture = Fixture::with_any_image().await;
    for name in ["rootfs:/etc", "oci-layout:/srv", "debian:bookworm+curl"] {
        let refused = with_image(&fixture, name).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, "INVALID_CONFIG"), "{name}");
        let expected = format!("image is '{name}'; allowed: 'gone:1', ");
        assert!(refused.message().starts_with(&expected), "{}", refused.message());
    }
    assert_eq!(fixture.post(ALL, json!({"image": IMAGE})).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_capacity_error_has_retry_after() {
    let fixture = Fixture::new().await;
    for _ in 0..FIT {
        fixture.create().await;
    }
    let refused = fixture.post(ALL, json!({"image": IMAGE})).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::SERVICE_UNAVAILABLE, "RESOURCE_EXHAUSTED"));
    assert_eq!(refused.header("retry-after"), "10");
    // Not recorded: the same key works when there is capacity.
    let body = json!({"image": IMAGE});
    assert_eq!(fixture.ask(keyed(&body, "k")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let id = fixture.call("GET", ALL).await.json["data"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.call("DELETE", &path(&id)).await.status, StatusCode::OK);
    assert_eq!(fixture.ask(keyed(&body, "k")).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_failed_start_is_an_internal_error_and_leaves_nothing() {
    let fixture = Fixture::new().await;
    fixture.driver.fail_next(DriverOp::Start, Fault::Before);
    let failed = fixture.post(ALL, json!({"image": IMAGE})).await;
    assert_eq!((failed.status, failed.code()), (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR"));
    assert_eq!(
        failed.message(),
        "internal error of the service; the operator can find the cause in the log by the id of this request"
    );
    assert_eq!(failed.json["error"]["details"], json!({}));
    assert_eq!(fixture.call("GET", ALL).await.json["pagination"]["total"], 0);
}

#[tokio::test]
async fn undeclared_bodies_are_ignored() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    for (method, path) in [
        ("GET", ALL.to_owned()),
        ("GET", path(&id)),
        ("POST", format!("/v1/sandboxes/{id}/pause")),
        ("POST", format!("/v1/sandboxes/{id}/resume")),
        ("DELETE", path(&id)),
    ] {
        let asked =
            request(method, &path).header("content-type", "text/plain").body("{\0 no json".into()).unwrap();
        assert_eq!(fixture.ask(asked).await.status, StatusCode::OK, "{method} {path}");
    }
}
