//! Names of sandboxes in place of their ids.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use super::fixture::{Answer, Fixture, IMAGE, bearer, json_request, request};

const ALL: &str = "/v1/sandboxes";
const WEB: &str = "/v1/sandboxes/web";

async fn create(fixture: &Fixture, name: &str) -> Answer {
    fixture.post(ALL, json!({ "image": IMAGE, "name": name })).await
}

async fn created(fixture: &Fixture, name: &str) -> String {
    let answer = create(fixture, name).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    answer.json["id"].as_str().unwrap().to_owned()
}

/// As account `two`.
async fn of_another(fixture: &Fixture, method: &str, path: &str, body: &Value) -> Answer {
    let call = Request::builder().method(method).uri(path).header("authorization", bearer(2));
    let call = call.header("content-type", "application/json");
    fixture.ask(call.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn every_path_of_a_sandbox_accepts_its_name() {
    let fixture = Fixture::new().await;
    let created = create(&fixture, "web").await;
    let id = created.json["id"].as_str().unwrap();
    assert_eq!((&created.json["name"], &created.json["metadata"]), (&json!("web"), &json!({})));
    assert_eq!(created.header("location"), format!("{ALL}/{id}"));
    for path in [WEB, "/v1/sandboxes/%77eb"] {
        assert_eq!(fixture.call("GET", path).await.json, created.json, "{path}");
    }
    assert_eq!(fixture.execute("web", json!({ "command": "echo hi" })).await.json["stdout"], "hi\n");
    let put = request("PUT", &format!("{WEB}/files?path=a")).body(Body::from("text")).unwrap();
    assert_eq!(fixture.ask(put).await.status, StatusCode::OK);
    assert_eq!(fixture.call("GET", &format!("{ALL}/{id}/files?path=a")).await.text, "text");
    for (method, rest) in [("POST", "/pause"), ("POST", "/resume"), ("GET", "/network"), ("GET", "/ports")] {
        let answer = fixture.call(method, &format!("{WEB}{rest}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{rest}: {answer:?}");
    }
    let missing = fixture.call("GET", &format!("{WEB}/files?path=none")).await;
    assert_eq!((missing.code(), missing.detail("sandboxId")), ("FILE_NOT_FOUND", id));
    let ended = fixture.call("DELETE", WEB).await;
    assert_eq!((ended.status, &ended.json["id"]), (StatusCode::OK, &json!(id)));
    let gone = fixture.call("GET", WEB).await;
    assert_eq!((gone.code(), gone.detail("sandboxId")), ("SANDBOX_NOT_FOUND", "web"));
    assert_eq!(fixture.call("GET", &format!("{ALL}/{id}")).await.detail("state"), "terminated");
}

#[tokio::test]
async fn a_name_in_use_is_refused_with_its_holder() {
    let fixture = Fixture::new().await;
    let id = created(&fixture, "web").await;
    let refused = create(&fixture, "web").await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "INVALID_STATE"));
    assert_eq!((refused.detail("field"), refused.detail("sandboxId")), ("name", id.as_str()));
    assert!(refused.message().contains(&id) && refused.message().contains("'web'"), "{}", refused.message());
    // The same by the tag, which a client of E2B uses.
    let tagged = json!({ "image": IMAGE, "metadata": { "sandboxd.name": "web" } });
    assert_eq!(fixture.post(ALL, tagged.clone()).await.code(), "INVALID_STATE");
    // Nobody's tag `name` has ever been a name.
    let own = json!({ "image": IMAGE, "metadata": { "name": "web" } });
    let own = fixture.post(ALL, own).await;
    assert_eq!((own.status, &own.json["metadata"]), (StatusCode::CREATED, &json!({ "name": "web" })));
    assert!(own.json.get("name").is_none());
    assert_eq!(fixture.call("DELETE", WEB).await.status, StatusCode::OK);
    let next = fixture.post(ALL, tagged).await;
    assert_eq!((next.status, &next.json["name"]), (StatusCode::CREATED, &json!("web")));
    for bad in ["sb_web", "", "a/b", "sb_aaaaaaaa", "-a"] {
        let refused = create(&fixture, bad).await;
        assert_eq!((refused.code(), refused.detail("field")), ("INVALID_CONFIG", "name"), "{bad}");
    }
}

#[tokio::test]
async fn names_and_ids_of_other_accounts_are_unknown() {
    let fixture = Fixture::new().await;
    let id = created(&fixture, "web").await;
    let nothing = json!({});
    let shown = |answer: &Answer| {
        let mut error = answer.json["error"].clone();
        error.as_object_mut().unwrap().remove("requestId");
        (answer.status, error.to_string())
    };
    for (method, rest) in [("GET", ""), ("DELETE", ""), ("POST", "/execute"), ("POST", "/pause")] {
        let foreign_id = of_another(&fixture, method, &format!("{ALL}/{id}{rest}"), &nothing).await;
        let foreign_name = of_another(&fixture, method, &format!("{WEB}{rest}"), &nothing).await;
        let unknown = of_another(&fixture, method, &format!("{ALL}/never{rest}"), &nothing).await;
        let (expected, text) = shown(&unknown);
        assert_eq!((expected, unknown.code()), (StatusCode::NOT_FOUND, "SANDBOX_NOT_FOUND"));
        assert_eq!(shown(&foreign_name), (expected, text.replace("never", "web")));
        assert_eq!(shown(&foreign_id), (expected, text.replace("never", &id)));
    }
    // The name is free in the other account, and each account gets its own.
    let created = of_another(&fixture, "POST", ALL, &json!({ "image": IMAGE, "name": "web" })).await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    assert_eq!(of_another(&fixture, "GET", WEB, &nothing).await.json["id"], created.json["id"]);
    assert_eq!(fixture.call("GET", WEB).await.json["id"], json!(id));
}

#[tokio::test]
async fn idempotency_keys_belong_to_the_sandbox_and_not_to_its_name() {
    let fixture = Fixture::new().await;
    let with_key = async |path: String, body: Value| {
        let mut call = json_request(&path, body.to_string());
        call.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        fixture.ask(call).await
    };
    let body = json!({ "image": IMAGE, "name": "web" });
    let first = with_key(ALL.to_owned(), body.clone()).await;
    let again = with_key(ALL.to_owned(), body).await;
    assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &first.text));
    let id = first.json["id"].as_str().unwrap();
    let command = json!({ "command": "echo hi" });
    let by_name = with_key(format!("{WEB}/execute"), command.clone()).await;
    let by_id = with_key(format!("{ALL}/{id}/execute"), command).await;
    assert_eq!((by_id.header("idempotency-replayed"), &by_id.text), ("true", &by_name.text));
}

#[tokio::test]
async fn lists_show_names_and_filter_by_them() {
    let fixture = Fixture::new().await;
    let id = created(&fixture, "web").await;
    fixture.create().await;
    let list = async |query: &str| fixture.call("GET", &format!("{ALL}?{query}")).await.json["data"].clone();
    let found = list("metadata.sandboxd.name=web&details=true").await;
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!((&found[0]["id"], &found[0]["name"]), (&json!(id), &json!("web")));
    assert_eq!(found[0]["metadata"], json!({}));
    let plain = list("metadata.sandboxd.name=web").await;
    assert!(plain[0].get("name").is_none(), "items without details are those of the specification");
    assert_eq!(list("").await.as_array().unwrap().len(), 2);
    // The name of a sandbox that has ended is free, and still shown.
    assert_eq!(fixture.call("DELETE", WEB).await.status, StatusCode::OK);
    let ended = list("state=terminated&details=true").await;
    assert_eq!((&ended[0]["id"], &ended[0]["name"]), (&json!(id), &json!("web")));
    assert_eq!((&ended[0]["metadata"], &ended[0]["reason"]), (&json!({}), &json!("deleted")));
    let plain = list("state=terminated").await;
    assert!(["name", "metadata", "reason"].iter().all(|field| plain[0].get(field).is_none()), "{plain}");
}

#[tokio::test]
async fn a_fork_takes_a_name_and_inherits_none() {
    let fixture = Fixture::new().await;
    created(&fixture, "web").await;
    let fork = async |body: Value| fixture.post(&format!("{WEB}/fork"), body).await;
    let forked = fork(json!({ "count": 1 })).await;
    assert!(forked.json["data"][0].get("name").is_none(), "{forked:?}");
    assert_eq!(fork(json!({ "count": 1, "name": "copy" })).await.json["data"][0]["name"], "copy");
    assert_eq!(fork(json!({ "count": 1, "name": "web" })).await.code(), "INVALID_STATE");
    let several = fork(json!({ "count": 2, "name": "more" })).await;
    assert_eq!((several.code(), several.detail("field")), ("INVALID_CONFIG", "name"));
}
