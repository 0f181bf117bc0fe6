//! Builds of templates: the cache, logs, cancellation, start commands, and what is removed.

use std::time::Duration;

use e2e::service::{Service, ServiceOptions, sample, small, with};
use hyper::Method;
use serde_json::{Value, json};

use crate::templates::{TEMPLATES, accept, body, build, context, create_from, failure, finished, log, path};
use crate::{SANDBOXES, number, output, sandbox_path, text, user, wait_until};

#[tokio::test]
async fn steps_are_cached_by_content() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let instructions = "RUN date +%N%s > /first\nCOPY file /file\nRUN cat /file > /second\nENV X=1";
    let with_file = |name: &str, content: &str| {
        with(body(name, instructions), "context", json!(context(&[("file", content), ("unused", content)])))
    };
    let cached = |template: &Value| number(&template["steps"]["cached"]);
    let one = build(&client, &with_file("one", "a")).await;
    assert_eq!(cached(&one), 0);
    // Another name, and another file that is not copied.
    let two = build(&client, &with_file("two", "a")).await;
    assert_eq!((cached(&two), number(&two["steps"]["done"])), (3, 3));
    let three = build(&client, &with_file("one", "b")).await;
    assert_eq!((cached(&three), &three["version"]), (1, &json!(2)));
    let first = |image: &'static str| {
        let client = &client;
        async move { output(client, &create_from(client, image).await, "cat /first /second").await }
    };
    let (old, same, new) = (first("one:1").await, first("two").await, first("one").await);
    assert_eq!(old, same);
    assert_eq!(old.lines().next(), new.lines().next());
    assert!(new.ends_with('b'), "{new}");
    let anew = build(&client, &with(with_file("one", "a"), "noCache", json!(true))).await;
    assert_eq!(cached(&anew), 0);
    assert_ne!(first("one").await, old);
    // The next build uses the newer steps.
    let newest = first("one").await;
    assert_eq!(cached(&build(&client, &with_file("one", "a")).await), 3);
    assert_eq!(first("one").await, newest);
    let metrics = service.read_metrics().await.unwrap();
    let counted = |name: &str, label: &str| sample(&metrics, name, &[label]);
    assert_eq!(counted("sandboxd_template_builds_total", "ready"), 5.0);
    assert_eq!(counted("sandboxd_template_builds_total", "failed"), 0.0);
    assert_eq!(counted("sandboxd_template_steps_total", "run"), 8.0);
    assert_eq!(counted("sandboxd_template_steps_total", "cache"), 7.0);
    // An account does not get the steps of another one.
    let other = service.account().await.unwrap();
    assert_eq!(cached(&build(&other, &with_file("one", "a")).await), 0);
    other
        .post(SANDBOXES, &with(small(), "image", json!("two")))
        .await
        .unwrap()
        .error(400, "INVALID_CONFIG")
        .unwrap();
    other.get(&path(&text(&one["id"]))).await.unwrap().error(404, "TEMPLATE_NOT_FOUND").unwrap();
    other.delete(&path(&text(&one["id"]))).await.unwrap().error(404, "TEMPLATE_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn a_build_is_cancelled_and_a_log_continues() {
    let (_service, client) = user().await;
    let asked = body("slow", "RUN echo begun; sleep 600");
    let id = accept(&client, &asked).await;
    let own = client.with_own_connections();
    let mut events = own.call(Method::GET, &format!("{}/logs", path(&id))).stream().await.unwrap();
    let begun = loop {
        let event = events.next().await.unwrap().unwrap();
        if event.name == "stdout" {
            break event;
        }
    };
    assert_eq!(begun.data, "begun");
    drop(events);
    assert_eq!(client.get(&path(&id)).await.unwrap().is(200).unwrap()["state"], "building");
    let begin = std::time::Instant::now();
    let cancelled = client.post_empty(&format!("{}/cancel", path(&id))).await.unwrap().is(200).unwrap();
    assert_eq!(cancelled["state"], "cancelled");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    let sandboxes = client.get(&format!("{SANDBOXES}?state=running")).await.unwrap().is(200).unwrap();
    assert_eq!(sandboxes["pagination"]["total"], 0);
    // A client that was away gets what it has missed.
    let rest = own
        .call(Method::GET, &format!("{}/logs", path(&id)))
        .header("last-event-id", begun.id.as_deref().unwrap());
    let rest = rest.stream().await.unwrap().rest().await.unwrap();
    let names: Vec<_> = rest.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["note", "done"], "{rest:?}");
    for wrong in ["1", "x", "+1", "99999999"] {
        let call = client.call(Method::GET, &format!("{}/logs", path(&id))).header("last-event-id", wrong);
        call.send().await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    }
    let last = client.call(Method::GET, &format!("{}/logs", path(&id))).header("last-event-id", "end");
    assert_eq!(last.send().await.unwrap().status, 204);
    // Again without effect.
    let again = client.post_empty(&format!("{}/cancel", path(&id))).await.unwrap().is(200).unwrap();
    assert_eq!(again, cancelled);
    // A deletion cancels too.
    let id = accept(&client, &asked).await;
    client.delete(&path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(
        client.get(&format!("{SANDBOXES}?state=running")).await.unwrap().is(200).unwrap()["pagination"]["total"],
        0
    );
    let late = with(body("late", "RUN sleep 600"), "timeoutMs", json!(1500));
    let error = failure(&client, &late).await;
    assert!(text(&error["message"]).contains("1500 ms"), "{error}");
}

#[tokio::test]
async fn a_deleted_template_frees_its_disk_when_no_other_needs_it() {
    let (service, client) = user().await;
    let snapshots = || std::fs::read_dir(service.layout.data.join("snapshots")).map_or(0, Iterator::count);
    let step = "RUN head -c 1000000 /dev/urandom > /own-step";
    let one = build(&client, &body("one", step)).await;
    let two = build(&client, &body("two", &format!("{step}\nRUN touch /other"))).await;
    assert_eq!(two["steps"]["cached"], 1);
    let sandbox = create_from(&client, "two").await;
    for template in [&one, &two] {
        client.delete(&path(&text(&template["id"]))).await.unwrap().is(200).unwrap();
        assert_eq!(output(&client, &sandbox, "ls /own-step /other").await, "/other\n/own-step\n");
    }
    assert!(snapshots() > 0);
    assert_eq!(output(&client, &sandbox, "stat -c %s /own-step").await, "1000000\n");
    client.delete(&sandbox_path(&sandbox)).await.unwrap().is(200).unwrap();
    let usage = || async { client.get("/v1/usage").await.unwrap().is(200).unwrap() };
    wait_until("the steps are deleted", async || {
        let usage = usage().await;
        usage["snapshotBytes"]["used"] == 0 && usage["templates"]["used"] == 0
    })
    .await;
}

#[tokio::test]
async fn a_start_command_runs_in_every_sandbox() {
    let (_service, client) = user().await;
    let server = "mkdir -p /run/app; while true; do date +%s%N > /run/app/new; mv /run/app/new /run/app/beat; touch /run/app/ready; sleep 0.1; done";
    let asked = with(body("served", "ENV A=b\nUSER 0\nWORKDIR /srv"), "startCommand", json!(server));
    let asked = with(asked, "readyCommand", json!("test -e /run/app/ready"));
    let template = build(&client, &asked).await;
    assert_eq!(template["startCommand"], server);
    assert_eq!(template["memory"], e2e::isolation() == api::Isolation::Gvisor);
    let again = build(&client, &asked).await;
    assert_eq!(again["version"], 2);
    for _ in 0..2 {
        let id = create_from(&client, "served").await;
        let beats =
            "one=$(cat /run/app/beat); sleep 0.5; two=$(cat /run/app/beat); [ $one != $two ] && echo alive";
        assert_eq!(output(&client, &id, beats).await, "alive\n");
    }
    let failing = with(body("failing", "RUN true"), "startCommand", json!("echo reason >&2; exit 4"));
    let id = accept(&client, &failing).await;
    let failed = finished(&client, &id).await;
    assert!(text(&failed["error"]["message"]).contains("code 4"), "{failed}");
    assert!(log(&client, &id).await.iter().any(|event| event.data == "reason"));
    let never = with(body("never", "RUN true"), "startCommand", json!("sleep 600"));
    let never = with(with(never, "readyCommand", json!("false")), "readyTimeoutMs", json!(700));
    let error = failure(&client, &never).await;
    assert!(text(&error["message"]).contains("not ready after 700 ms"), "{error}");
    let lacking = with(body("lacking", "RUN true"), "startCommand", json!("sleep 600"));
    let lacking = with(lacking, "readyCommand", json!("no-such-tool -l | grep :80"));
    let id = accept(&client, &with(lacking, "readyTimeoutMs", json!(3000))).await;
    let failed = finished(&client, &id).await;
    let missing = "the image has no program 'no-such-tool'";
    assert!(text(&failed["error"]["message"]).ends_with(missing), "{failed}");
    let is_note = |event: &e2e::service::Event| event.name == "note" && event.data.ends_with(missing);
    assert!(log(&client, &id).await.iter().any(is_note), "{id}");
}

#[tokio::test]
async fn a_repeated_request_builds_once() {
    let (_service, client) = user().await;
    let asked = body("once", "RUN true");
    let send =
        || client.call(Method::POST, TEMPLATES).header("idempotency-key", "build-1").json(&asked).send();
    let first = send().await.unwrap().is(201).unwrap();
    let again = send().await.unwrap();
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.is(201).unwrap()["id"], first["id"]);
    finished(&client, &text(&first["id"])).await;
    assert_eq!(client.get(TEMPLATES).await.unwrap().is(200).unwrap()["pagination"]["total"], 1);
    let events = client.get("/v1/events?type=template.ready").await.unwrap().is(200).unwrap();
    assert_eq!(events["data"][0]["data"]["templateId"], first["id"]);
}

#[tokio::test]
async fn a_failing_start_command_fails_the_create() {
    let (_service, client) = user().await;
    let start = "[ \"$FAIL\" = yes ] && { echo no; exit 3; }; exec sleep 600";
    let asked = with(body("fails", "RUN true"), "startCommand", json!(start));
    let template = build(&client, &asked).await;
    let wanted = with(with(small(), "image", json!("fails")), "isolation", json!(e2e::isolation()));
    let wanted = with(with(wanted, "env", json!({ "FAIL": "yes" })), "cold", json!(true));
    for _ in 0..2 {
        let call = client.call(Method::POST, SANDBOXES).header("idempotency-key", "create-1").json(&wanted);
        let error = call.send().await.unwrap().error(502, "EXECUTION_ERROR").unwrap();
        assert!(text(&error["message"]).contains("code 3"), "{template} {error}");
    }
    let running = client.get(&format!("{SANDBOXES}?state=running")).await.unwrap().is(200).unwrap();
    assert_eq!(running["pagination"]["total"], 0);
    let good = with(wanted, "env", json!({}));
    let call = client.call(Method::POST, SANDBOXES).header("idempotency-key", "create-2").json(&good);
    let id = text(&call.send().await.unwrap().is(201).unwrap()["id"]);
    let call = client.call(Method::POST, SANDBOXES).header("idempotency-key", "create-2").json(&good);
    assert_eq!(call.send().await.unwrap().is(201).unwrap()["id"], id.as_str());
}

/// A template is no way around the minimum isolation of an image.
#[tokio::test]
async fn the_minimum_of_an_image_applies_to_templates_above_it() {
    let table = "isolation.images.\"ubuntu:24.04\"";
    assert_eq!(Service::image(), "ubuntu:24.04");
    let options = ServiceOptions::default()
        .without_isolation()
        .with("isolation", "default", "\"container\"")
        .with(table, "minimum", "\"gvisor\"");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let mut asked = body("strong", "RUN cat /proc/version > /kernel");
    asked["isolation"] = json!("container");
    client.post(TEMPLATES, &asked).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    asked["isolation"] = json!("auto");
    let template = build(&client, &asked).await;
    assert_eq!(template["isolation"], "gvisor");
    let weak = with(with(small(), "image", json!("strong")), "isolation", json!("container"));
    client.post(SANDBOXES, &weak).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    let create = with(with(small(), "image", json!("strong")), "isolation", json!("auto"));
    let created = client.post(SANDBOXES, &create).await.unwrap().is(201).unwrap();
    assert_eq!(created["isolation"], "gvisor");
    let kernel = output(&client, &text(&created["id"]), "cat /kernel").await;
    assert!(kernel.starts_with("Linux version 4.4.0 "), "{kernel}");
}

/// One account with long builds does not delay those of others.
#[tokio::test]
async fn builds_of_an_account_leave_room_for_others() {
    let options = ServiceOptions::default().with("templates", "concurrent_builds", "2");
    let service = Service::start(&options).await.unwrap();
    let (busy, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    for number in 0..4 {
        accept(&busy, &body(&format!("slow{number}"), "RUN sleep 300")).await;
    }
    build(&other, &body("quick", "RUN true")).await;
}
