//! The tools of snapshots, forks and templates, against a service on the fake driver; and what all tools have in common.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::time::Duration;

use rmcp::model::{JsonObject, Tool};
use sandboxd_client::{Code, SandboxState, TemplateState};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::alternatives::ACTION;
use super::renamed::{RENAMED, Renamed};
use super::{ToolCall, all};
use crate::failure::ToolFailure;
use crate::session::{McpSettings, Session};

type Tested = Result<(), Box<dyn StdError>>;

/// Runs a test with a call of a new session on a new service.
fn with_service(test: impl AsyncFnOnce(ToolCall) -> Tested) {
    sandboxd::testing::with_client(async |client| {
        test(ToolCall {
            client,
            session: Some(Session::default()),
            settings: McpSettings::default().into(),
            progress: None,
            cancelled: CancellationToken::new(),
        })
        .await
    });
}

/// Calls a tool, with its action if `name` has one. Returns whether it failed, its texts and its structured content.
async fn send(call: &ToolCall, name: &str, mut arguments: Value) -> (bool, String, Value) {
    let name = match name.split_once(' ') {
        Some((tool, action)) => {
            arguments["action"] = action.into();
            tool
        }
        None => name,
    };
    let Value::Object(arguments) = arguments else { panic!("{arguments} is no object") };
    let called = super::call(name, call, arguments).await.unwrap_or_else(|| panic!("no tool {name}"));
    let result = called.unwrap_or_else(ToolFailure::into_result);
    let texts = result.content.iter().filter_map(|block| block.as_text()).map(|block| block.text.as_str());
    let text = texts.collect::<Vec<_>>().join("\n");
    (result.is_error == Some(true), text, result.structured_content.unwrap_or_default())
}

async fn succeeds(call: &ToolCall, name: &str, arguments: Value) -> Value {
    let (failed, text, structured) = send(call, name, arguments).await;
    assert!(!failed, "{name}: {text}");
    structured
}

/// The call fails, with a message that has these words.
async fn is_refused(call: &ToolCall, name: &str, arguments: Value, words: &[&str]) {
    let (failed, text, _) = send(call, name, arguments).await;
    assert!(failed, "{name}: {text}");
    for word in words {
        assert!(text.contains(word), "{name}: no '{word}' in: {text}");
    }
}

fn id(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}

/// What the command line prints in a sandbox.
async fn prints(call: &ToolCall, sandbox: &str, command: &str) -> String {
    call.client.sandbox(sandbox).unwrap().execute(command).await.unwrap().stdout
}

/// The actions of a tool; none if it has no actions.
fn actions(tool: &Tool) -> Vec<String> {
    let actions = tool.input_schema["properties"].get(ACTION).map(|property| &property["enum"]);
    let names = actions.and_then(Value::as_array).into_iter().flatten();
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_tool_is_defined_documented_and_called() {
    let manual = include_str!("../../../../docs/mcp.md");
    let names: BTreeSet<&str> = all().map(|tool| &*tool.name).collect();
    assert_eq!(names.len(), all().len(), "a name twice");
    assert!(names.len() <= 10, "a model's choice gets worse with each tool");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|row| row.0);
    let documented: BTreeSet<&str> = rows.filter(|name| name.contains('_') && !name.contains('.')).collect();
    assert_eq!(documented, names, "the table of docs/mcp.md");
    for tool in all() {
        assert!(tool.description.as_ref().is_some_and(|text| !text.is_empty()), "{tool:?}");
        let output = tool.output_schema.as_ref().unwrap();
        for schema in [&tool.input_schema, output] {
            // Hosts refuse references, and alternatives at the root.
            let text = serde_json::to_string(&**schema).unwrap();
            assert!(schema["type"] == "object" && !text.contains("$ref"), "{}: {text}", tool.name);
            for unwanted in ["oneOf", "anyOf", "title", "description", "$schema"] {
                assert!(!schema.contains_key(unwanted), "{}: {unwanted}", tool.name);
            }
        }
        for (name, property) in tool.input_schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{}: {name} has no description", tool.name);
        }
        assert_eq!(tool.input_schema["additionalProperties"], false, "{tool:?}");
        let annotations = tool.annotations.as_ref().unwrap();
        assert!(!(annotations.read_only_hint.unwrap() && annotations.destructive_hint.unwrap()), "{tool:?}");
        assert!(annotations.title.is_some(), "{tool:?}");
        for action in actions(tool) {
            let row = manual.lines().any(|line| {
                line.starts_with(&format!("| `{}` |", tool.name)) && line.contains(&format!("| `{action}` |"))
            });
            assert!(row, "docs/mcp.md has no row for the action {action} of {}", tool.name);
        }
    }
    with_service(async |call| {
        for tool in all() {
            if actions(tool).is_empty() {
                is_refused(&call, &tool.name, json!({"unknown": 1}), &["unknown field"]).await;
                continue;
            }
            is_refused(&call, &tool.name, json!({}), &["action"]).await;
            is_refused(&call, &tool.name, json!({"action": "other"}), &["other", "list"]).await;
            for action in actions(tool) {
                let arguments = json!({"action": action, "unknown": 1});
                is_refused(&call, &tool.name, arguments, &["unknown field"]).await;
            }
        }
        Ok(())
    });
}

#[test]
fn an_action_refuses_the_arguments_of_others_and_names_what_it_needs() {
    with_service(async |call| {
        let foreign = json!({"snapshotId": "snap_0", "name": "before"});
        is_refused(&call, "manage_snapshots delete", foreign, &["unknown field", "name"]).await;
        is_refused(&call, "manage_snapshots rollback", json!({}), &["missing field", "snapshotId"]).await;
        is_refused(&call, "manage_templates build", json!({"name": "web"}), &["dockerfile"]).await;
        Ok(())
    });
}

#[test]
fn a_tool_of_an_earlier_version_names_the_one_that_does_it_now() {
    with_service(async |call| {
        for Renamed { old, tool, action } in RENAMED {
            assert!(all().all(|existing| existing.name != old), "{old} exists");
            let current = all().find(|current| current.name == tool).unwrap();
            assert!(actions(current).iter().any(|name| name == action), "{tool} {action}");
            is_refused(&call, old, json!({}), &[old, tool, &format!("\"{action}\"")]).await;
        }
        assert!(super::call("no_such_tool", &call, JsonObject::new()).await.is_none());
        Ok(())
    });
}

#[test]
fn a_sandbox_returns_to_its_snapshot_and_others_begin_with_it() {
    with_service(async |call| {
        let sandbox =
            id(&succeeds(&call, "run_command", json!({"command": "echo before > file"})).await, "sandboxId");
        let taken = succeeds(&call, "manage_snapshots take", json!({"name": "before"})).await;
        let snapshot = id(&taken, "snapshotId");
        assert_eq!((id(&taken, "sandboxId"), id(&taken, "name")), (sandbox.clone(), "before".to_owned()));
        assert_eq!(call.client.snapshot(&snapshot).await?.metadata["mcp"], "created");
        for filter in [json!({}), json!({"name": "before"}), json!({"sandboxId": sandbox, "limit": 1})] {
            let listed = succeeds(&call, "manage_snapshots list", filter).await;
            assert_eq!((&listed["snapshots"], &listed["total"]), (&json!([taken]), &json!(1)));
        }
        assert_eq!(succeeds(&call, "manage_snapshots list", json!({"name": "other"})).await["total"], 0);

        prints(&call, &sandbox, "echo after > file").await;
        let back = succeeds(&call, "manage_snapshots rollback", json!({"snapshotId": snapshot})).await;
        assert_eq!(back, json!({"sandboxId": sandbox, "snapshotId": snapshot, "state": "running"}));
        assert_eq!(prints(&call, &sandbox, "cat file").await, "before\n");

        succeeds(&call, "manage_sandboxes terminate", json!({})).await;
        is_refused(
            &call,
            "manage_snapshots rollback",
            json!({"snapshotId": snapshot}),
            &["has ended", "create_sandbox"],
        )
        .await;
        let copy = succeeds(&call, "create_sandbox", json!({"image": snapshot})).await;
        assert_eq!(prints(&call, &id(&copy, "sandboxId"), "cat file").await, "before\n");
        let deleted = succeeds(&call, "manage_snapshots delete", json!({"snapshotId": snapshot})).await;
        assert_eq!(deleted, json!({"snapshotId": snapshot}));
        for tool in ["manage_snapshots delete", "manage_snapshots rollback"] {
            is_refused(
                &call,
                tool,
                json!({"snapshotId": snapshot}),
                &["SNAPSHOT_NOT_FOUND", "manage_snapshots"],
            )
            .await;
            is_refused(&call, tool, json!({"snapshotId": "../x"}), &["snapshotId", "'snap_'"]).await;
        }
        Ok(())
    });
}

#[test]
fn pages_of_snapshots_continue_each_other() {
    with_service(async |call| {
        for _ in 0..3 {
            succeeds(&call, "manage_snapshots take", json!({})).await;
        }
        let first = succeeds(&call, "manage_snapshots list", json!({"limit": 2})).await;
        assert_eq!((&first["total"], &first["nextOffset"]), (&json!(3), &json!(2)));
        let last = succeeds(&call, "manage_snapshots list", json!({"limit": 2, "offset": 2})).await;
        assert_eq!((last["snapshots"].as_array().unwrap().len(), last.get("nextOffset")), (1, None));
        is_refused(&call, "manage_snapshots list", json!({"limit": 101}), &["1 to 100"]).await;
        Ok(())
    });
}

#[test]
fn only_a_command_that_was_killed_at_its_timeout_has_timed_out() {
    with_service(async |call| {
        for (command, timed_out) in [("sleep 30", true), ("kill -9 $$", false), ("exit 3", false)] {
            let (_, text, ran) =
                send(&call, "run_command", json!({"command": command, "timeoutSeconds": 1})).await;
            assert_eq!(ran["timedOut"], timed_out, "{command}: {text}");
        }
        Ok(())
    });
}

#[test]
fn memory_of_a_container_is_refused_with_advice() {
    with_service(async |call| {
        for tool in ["manage_snapshots take", "manage_sandboxes fork"] {
            is_refused(&call, tool, json!({"memory": true}), &["ISOLATION_MISMATCH", "without memory"]).await;
        }
        assert_eq!(call.client.snapshots().all().await?.len(), 0);
        Ok(())
    });
}

#[test]
fn forks_of_the_unnamed_sandbox_end_with_the_session_and_others_do_not() {
    with_service(async |call| {
        let unnamed =
            id(&succeeds(&call, "run_command", json!({"command": "echo kept > file"})).await, "sandboxId");
        let forked = succeeds(&call, "manage_sandboxes fork", json!({"count": 3})).await;
        assert_eq!((id(&forked, "sandboxId"), &forked["endsWithSession"]), (unnamed.clone(), &json!(true)));
        let mut owned = vec![unnamed];
        for fork in forked["forkIds"].as_array().unwrap() {
            let fork = fork.as_str().unwrap();
            assert_eq!(prints(&call, fork, "cat file").await, "kept\n");
            assert_eq!(call.client.get(fork).await?.known().unwrap().metadata["mcp"], "forked");
            owned.push(fork.to_owned());
        }
        assert_eq!(owned.len(), 4);
        let again = succeeds(&call, "manage_sandboxes fork", json!({"sandboxId": owned[1]})).await;
        assert_eq!(again["endsWithSession"], true, "the fork of a fork");
        owned.push(again["forkIds"][0].as_str().unwrap().to_owned());

        let created =
            call.client.create("ubuntu:24.04").metadata("job", "17").timeout(Duration::from_secs(77)).await?;
        let other =
            succeeds(&call, "manage_sandboxes fork", json!({"sandboxId": created.id().as_str()})).await;
        assert_eq!((&other["endsWithSession"], &other["timeoutSeconds"]), (&json!(false), &json!(77)));
        let survivor = call.client.get(other["forkIds"][0].as_str().unwrap()).await?;
        assert_eq!(survivor.known().unwrap().metadata["job"], "17");

        let listed = succeeds(&call, "manage_sandboxes list", json!({})).await;
        let items = listed["sandboxes"].as_array().unwrap();
        assert!(items.len() >= owned.len(), "{listed}");
        for item in items {
            let listed = id(item, "sandboxId");
            assert_eq!(item["endsWithSession"], owned.contains(&listed), "{item}");
            assert_eq!(item["isUnnamed"], listed == owned[0], "{item}");
        }

        let session = call.session.as_ref().unwrap();
        assert!(!session.is_unused());
        succeeds(&call, "manage_sandboxes terminate", json!({"sandboxId": owned[2]})).await;
        session.end().await;
        for sandbox in owned {
            assert_eq!(call.client.get(&sandbox).await.unwrap_err().code(), Code::SandboxNotFound);
        }
        for sandbox in [created, survivor] {
            sandbox.refresh().await?;
        }
        is_refused(&call, "manage_sandboxes fork", json!({"count": 0}), &["1 to 100"]).await;
        Ok(())
    });
}

#[test]
fn a_template_is_built_used_listed_and_deleted() {
    with_service(async |call| {
        let dockerfile = "FROM ubuntu:24.04\nENV GREETING=hello\nWORKDIR /srv\n";
        let built =
            succeeds(&call, "manage_templates build", json!({"name": "web", "dockerfile": dockerfile})).await;
        let template = id(&built, "templateId");
        assert_eq!((&built["state"], &built["version"]), (&json!("ready"), &json!(1)), "{built}");
        assert!(id(&built, "log").contains("] WORKDIR /srv\n"), "{built}");
        assert_eq!(call.client.template(&template).await?.metadata["mcp"], "created");
        for image in ["web", &template] {
            let created = succeeds(&call, "create_sandbox", json!({"image": image})).await;
            assert_eq!(prints(&call, &id(&created, "sandboxId"), "echo $GREETING").await, "hello\n");
        }
        assert_eq!(
            succeeds(&call, "manage_templates read_log", json!({"templateId": template})).await,
            built
        );
        let listed = succeeds(&call, "manage_templates list", json!({"name": "web", "state": "ready"})).await;
        assert_eq!((&listed["templates"][0]["templateId"], &listed["total"]), (&json!(template), &json!(1)));
        assert_eq!(succeeds(&call, "manage_templates list", json!({"state": "failed"})).await["total"], 0);
        succeeds(&call, "manage_templates delete", json!({"templateId": template})).await;
        for tool in ["manage_templates delete", "manage_templates read_log"] {
            is_refused(
                &call,
                tool,
                json!({"templateId": template}),
                &["TEMPLATE_NOT_FOUND", "manage_templates"],
            )
            .await;
            is_refused(&call, tool, json!({"templateId": "web"}), &["templateId", "'tpl_'"]).await;
        }
        Ok(())
    });
}

#[test]
fn a_long_build_goes_on_after_its_call_unless_that_is_dropped() {
    with_service(async |call| {
        let build =
            json!({"name": "slow", "dockerfile": "FROM ubuntu:24.04\nRUN sleep 600", "waitSeconds": 1});
        let (failed, text, built) = send(&call, "manage_templates build", build.clone()).await;
        assert!(!failed && built["state"] == "building" && text.contains("the action read_log"), "{text}");
        let template = json!({"templateId": built["templateId"]});
        let read = json!({"templateId": built["templateId"], "waitSeconds": 1});
        let read = succeeds(&call, "manage_templates read_log", read).await;
        assert_eq!(
            (&read["state"], &read["log"]),
            (&json!("building"), &json!("[step 1 of 1] RUN sleep 600\n"))
        );
        succeeds(&call, "manage_templates delete", template).await;

        let dropped =
            tokio::time::timeout(Duration::from_millis(300), send(&call, "manage_templates build", build));
        assert!(dropped.await.is_err());
        for _ in 0..100 {
            let left = call.client.templates().all().await?;
            if left.iter().map(|template| template.state).eq([TemplateState::Cancelled]) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the build runs on");
    });
}

#[test]
fn a_failed_build_says_why() {
    with_service(async |call| {
        let arguments = json!({"name": "web", "dockerfile": "FROM missing:1\n"});
        let (failed, text, built) = send(&call, "manage_templates build", arguments).await;
        assert!(!failed && text.contains("failed") && text.contains("Correct the Dockerfile"), "{text}");
        assert_eq!((&built["state"], &built["error"]["line"]), (&json!("failed"), &json!(1)), "{built}");
        let unsupported = json!({"name": "web", "dockerfile": "FROM ubuntu:24.04\nRUN --network=none x\n"});
        is_refused(&call, "manage_templates build", unsupported, &["INVALID_CONFIG", "RUN --network=none"])
            .await;
        let impatient = json!({"name": "web", "dockerfile": "FROM ubuntu:24.04", "waitSeconds": 301});
        is_refused(&call, "manage_templates build", impatient, &["1 to 300"]).await;
        Ok(())
    });
}

#[test]
fn a_cancelled_call_leaves_nothing_behind() {
    with_service(async |call| {
        let sandbox = id(&succeeds(&call, "run_command", json!({"command": "true"})).await, "sandboxId");
        call.cancelled.cancel();
        for (tool, arguments) in [
            ("manage_snapshots take", json!({})),
            ("manage_sandboxes fork", json!({"count": 2})),
            (
                "manage_templates build",
                json!({"name": "web", "dockerfile": "FROM ubuntu:24.04\nWORKDIR /srv"}),
            ),
        ] {
            is_refused(&call, tool, arguments, &["cancelled"]).await;
        }
        assert_eq!(call.client.snapshots().all().await?.len(), 0);
        let running = call.client.list().state(SandboxState::Running).page(0).await?.data;
        assert_eq!(running.iter().map(|item| item.id.to_string()).collect::<Vec<_>>(), [sandbox]);
        for template in call.client.templates().all().await? {
            // The build may have been over before it was cancelled.
            assert!(template.state.is_final(), "{}", template.state);
            assert_ne!(template.state, TemplateState::Failed);
        }
        Ok(())
    });
}

#[test]
fn steps_of_a_build_reach_only_the_domains_of_the_server() {
    with_service(async |mut call| {
        let only = Some(vec!["example.com".to_owned()]);
        call.settings = McpSettings { only_domains: only, ..McpSettings::default() }.into();
        let build = |domains: Value| json!({"name": "web", "dockerfile": "FROM ubuntu:24.04", "allowedDomains": domains});
        is_refused(
            &call,
            "manage_templates build",
            build(json!(["example.org"])),
            &["allows only: example.com"],
        )
        .await;
        succeeds(&call, "manage_templates build", build(json!(["example.com"]))).await;
        Ok(())
    });
}
