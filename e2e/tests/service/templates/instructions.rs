//! Templates: what the instructions of a Dockerfile do, what is cached, and what a build leaves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::service::{Service, small, with};
use hyper::Method;
use serde_json::json;

use crate::templates::{
    TEMPLATES, accept, archive, body, build, context, create_from, dockerfile, failure, finished, log, path,
};
use crate::{
    SANDBOXES, SNAPSHOTS, action_path, keys, number, output, sandbox_path, take_snapshot, text, time, user,
};

#[tokio::test]
async fn a_template_has_the_documented_fields_and_its_name_is_an_image() {
    let (_service, client) = user().await;
    let asked =
        with(body("web", "RUN echo hello > /greeting\nENV GREETING=hi"), "metadata", json!({ "job": "7" }));
    let accepted = client.post(TEMPLATES, &asked).await.unwrap().is(201).unwrap();
    let fields = [
        "base",
        "createdAt",
        "id",
        "isolation",
        "memory",
        "metadata",
        "name",
        "sizeBytes",
        "state",
        "steps",
        "version",
    ];
    assert_eq!(keys(&accepted), fields);
    assert_eq!((&accepted["state"], &accepted["version"]), (&json!("queued"), &json!(1)));
    let id = text(&accepted["id"]);
    let events = log(&client, &id).await;
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["step", "note", "done"]);
    let step = events[0].json().unwrap();
    let expected =
        json!({ "number": 1, "total": 1, "line": 2, "text": "RUN echo hello > /greeting", "cached": false });
    assert_eq!(step, expected);
    let template = events[2].json().unwrap();
    assert_eq!(template["steps"], json!({ "total": 1, "done": 1, "cached": 0 }));
    assert_eq!(client.get(&path(&id)).await.unwrap().is(200).unwrap(), template);
    time(&template["finishedAt"]);
    assert!(number(&template["sizeBytes"]) > 0, "{template}");
    for image in ["web", "web:1", "web:latest", id.as_str()] {
        let sandbox = create_from(&client, image).await;
        assert_eq!(
            output(&client, &sandbox, "echo $(cat /greeting) $GREETING").await,
            "hello hi\n",
            "{image}"
        );
        client.delete(&sandbox_path(&sandbox)).await.unwrap().is(200).unwrap();
    }
    for image in ["web:2", "tpl_unknown00"] {
        let create = with(small(), "image", json!(image));
        let code =
            if image.starts_with("tpl_") { (404, "TEMPLATE_NOT_FOUND") } else { (400, "INVALID_CONFIG") };
        client.post(SANDBOXES, &create).await.unwrap().error(code.0, code.1).unwrap();
    }
    // The snapshots of steps are not those of the user.
    let snapshots = client.get(SNAPSHOTS).await.unwrap().is(200).unwrap();
    assert_eq!(snapshots["pagination"]["total"], 0);
    let listed = client.get(&format!("{TEMPLATES}?name=web&state=ready&metadata.job=7")).await.unwrap();
    assert_eq!(listed.is(200).unwrap()["data"], json!([template]));
    let none = client.get(&format!("{TEMPLATES}?name=other")).await.unwrap().is(200).unwrap();
    assert_eq!(none["pagination"]["total"], 0);
    // A name is accepted in place of the id, unless it is that of several.
    for name in ["web", "web:1"] {
        assert_eq!(client.get(&path(name)).await.unwrap().is(200).unwrap(), template);
    }
    let second = text(&build(&client, &body("web", "RUN true")).await["id"]);
    assert_eq!(client.get(&path("web")).await.unwrap().is(200).unwrap()["id"], second.as_str());
    let refused = client.delete(&path("web")).await.unwrap().error(409, "INVALID_STATE").unwrap();
    assert!(refused.to_string().contains(&second), "{refused}");
    client.delete(&path("web:2")).await.unwrap().is(200).unwrap();
    let deleted = client.delete(&path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&deleted), ["deletedAt", "id"]);
    client.get(&path(&id)).await.unwrap().error(404, "TEMPLATE_NOT_FOUND").unwrap();
    client.get(&format!("{}/logs", path(&id))).await.unwrap().error(404, "TEMPLATE_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn every_instruction_has_its_effect() {
    let (_service, client) = user().await;
    let instructions = "\
ARG WHO=nobody
ENV A=one B=\"two words\" PATH=/opt/bin:$PATH
LABEL maintainer=me
WORKDIR /srv/app
COPY run.sh ./
COPY --chmod=600 conf/ /etc/app/
COPY --chown=1234:4321 src link ../owned/
COPY *.txt /texts/
COPY <<EOF /inline
who=$WHO a=$A
EOF
ADD bundle.tar.gz /opt/
ADD nested plain.gz /nested/
RUN ./run.sh > out && echo \"$B\" >> out && echo $WHO >> out && id -u >> out && pwd >> out
USER 1234:4321
WORKDIR relative
RUN [\"bash\", \"-c\", \"id -u > /tmp/uid; id -g >> /tmp/uid; echo $0 >> /tmp/uid\"]
USER root
SHELL [\"/bin/bash\", \"-o\", \"pipefail\", \"-c\"]
RUN <<EOF
set -e
[[ $A == one ]] && echo bash > /shell
EOF
RUN cat - <<'IN' > /stdin && \\
    # a comment
    echo more >> /stdin
literal $A
IN
EXPOSE 8080
CMD [\"serve\"]
";
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(
        &mut encoder,
        &archive(&[("bin/", ""), ("bin/tool.sh", "#!/bin/sh\necho tool\n")]),
    )
    .unwrap();
    let bundle = encoder.finish().unwrap();
    let mut files = tar::Builder::new(unfinished_archive(&[
        ("run.sh", "#!/bin/sh\necho run $A\n"),
        ("conf/", ""),
        ("conf/one", "1"),
        ("conf/deep/two", "2"),
        ("src/main", "main"),
        ("link", "-> src/main"),
        ("a.txt", "a"),
        ("b.txt", "b"),
    ]));
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(bundle.len() as u64);
    for name in ["bundle.tar.gz", "nested/bundle.tar.gz"] {
        files.append_data(&mut header, name, bundle.as_slice()).unwrap();
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, b"no archive").unwrap();
    let plain = encoder.finish().unwrap();
    header.set_size(plain.len() as u64);
    files.append_data(&mut header, "plain.gz", plain.as_slice()).unwrap();
    let context = STANDARD.encode(files.into_inner().unwrap());
    let asked = with(body("all", instructions), "context", json!(context));
    let asked = with(asked, "buildArgs", json!({ "WHO": "me", "UNUSED": "x" }));
    let template = build(&client, &asked).await;
    let events = log(&client, &text(&template["id"])).await;
    assert!(events.iter().any(|event| event.data.contains("UNUSED")), "{events:?}");
    let id = create_from(&client, "all").await;
    for (command, expected) in [
        ("pwd", "/srv/app/relative\n"),
        ("cat /srv/app/out", "run one\ntwo words\nme\n0\n/srv/app\n"),
        ("cat /tmp/uid", "1234\n4321\nbash\n"),
        ("stat -c '%a %u' /etc/app/one /etc/app/deep/two /srv/app/run.sh", "600 0\n600 0\n755 0\n"),
        (
            "stat -c '%u:%g %F' /srv/owned /srv/owned/main /srv/owned/link",
            "1234:4321 directory\n1234:4321 regular file\n1234:4321 regular file\n",
        ),
        ("ls /texts", "a.txt\nb.txt\n"),
        // Only an archive that is itself a source is unpacked.
        ("ls /nested", "bundle.tar.gz\nplain.gz\n"),
        ("cat /inline /shell", "who=me a=one\nbash\n"),
        ("cat /stdin", "literal $A\nmore\n"),
        ("tool.sh; echo $A $B", "tool\none two words\n"),
        ("echo [$WHO]", "[]\n"),
        ("stat -c %Y /srv/app/run.sh", "1000000000\n"),
    ] {
        assert_eq!(output(&client, &id, command).await, expected, "{command}");
    }
}

fn unfinished_archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut whole = archive(files);
    // Without the two blocks that end it.
    whole.truncate(whole.len() - 1024);
    whole
}

#[tokio::test]
async fn templates_and_snapshots_are_bases() {
    let (_service, client) = user().await;
    build(&client, &body("base", "ENV FROM_BASE=yes\nWORKDIR /data\nUSER 7\nRUN touch /tmp/base")).await;
    let of = |name: &str, from: &str, instructions: &str| {
        with(body(name, ""), "dockerfile", json!(format!("FROM {from}\n{instructions}")))
    };
    build(&client, &of("above", "base", "RUN echo $FROM_BASE $(pwd) $(id -u) > /tmp/above")).await;
    let id = create_from(&client, "above").await;
    assert_eq!(
        output(&client, &id, "ls /tmp/base; cat /tmp/above; pwd").await,
        "/tmp/base\nyes /data 7\n/data\n"
    );
    output(&client, &id, "echo kept > /tmp/own").await;
    let snapshot = take_snapshot(&client, &id).await;
    build(&client, &of("snapped", &snapshot, "RUN cat /tmp/own > /tmp/copied")).await;
    let id = create_from(&client, "snapped").await;
    assert_eq!(output(&client, &id, "cat /tmp/copied; echo $FROM_BASE").await, "kept\nyes\n");
    // By its name, too: the newest snapshot with it. A name hides no image of the operator.
    let image = Service::image();
    for (text, name) in [("older", "named"), ("newer", "named"), ("hidden", image)] {
        output(&client, &id, &format!("echo {text} > /tmp/own")).await;
        client.post(&action_path(&id, "snapshots"), &json!({ "name": name })).await.unwrap().is(201).unwrap();
    }
    build(&client, &of("by-name", "named", "RUN cp /tmp/own /tmp/copied")).await;
    let id = create_from(&client, "by-name").await;
    assert_eq!(output(&client, &id, "cat /tmp/copied").await, "newer\n");
    build(&client, &of("of-operator", image, "RUN test ! -e /tmp/own")).await;
    // An argument in FROM, and no step at all.
    let plain = with(of("plain", "$BASE", ""), "dockerfile", json!("ARG BASE=none\nFROM $BASE"));
    build(&client, &with(plain, "buildArgs", json!({ "BASE": "base:1" }))).await;
    let id = create_from(&client, "plain").await;
    assert_eq!(output(&client, &id, "echo $FROM_BASE; pwd").await, "yes\n/data\n");
    for from in ["missing:1", "snap_missing00", "tpl_missing00"] {
        let error = failure(&client, &of("bad", from, "RUN true")).await;
        assert_eq!(error["line"], 1, "{error}");
    }
}

#[tokio::test]
async fn failures_name_the_line_and_leave_nothing() {
    let (_service, client) = user().await;
    for (instructions, line, part) in [
        ("RUN true\nRUN echo why >&2; exit 3", 3, "code 3"),
        ("RUN kill -9 $$", 2, "SIGKILL"),
        ("COPY missing /x", 2, "nothing at 'missing'"),
        ("COPY ../up /x", 2, "outside"),
        ("USER nobody-known\nRUN true", 3, "no user"),
        ("COPY --chown=nobody-known:root f /x", 2, "no user 'nobody-known'"),
        ("COPY --chown=root:nobody-known f /x", 2, "no group 'nobody-known'"),
        ("RUN rm -f /usr/bin/true; echo x > /file\nCOPY f g /file/", 3, "/file"),
        ("WORKDIR /etc/passwd/x\nRUN true", 3, "/etc/passwd"),
        ("RUN [\"/missing-program\"]", 2, "missing-program"),
    ] {
        let asked = with(body("bad", instructions), "context", json!(context(&[("f", "f"), ("g", "g")])));
        let id = accept(&client, &asked).await;
        let template = finished(&client, &id).await;
        let error = &template["error"];
        assert_eq!(template["state"], "failed", "{instructions}: {template}");
        assert_eq!(error["line"], line, "{instructions}: {error}");
        assert!(text(&error["message"]).contains(part), "{instructions}: {error}");
    }
    let events =
        log(&client, &accept(&client, &body("bad", "RUN echo out; echo err >&2; exit 1")).await).await;
    let output: Vec<_> = events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
    assert!(output.contains(&("stdout", "out")) && output.contains(&("stderr", "err")), "{output:?}");
    client
        .post(SANDBOXES, &with(small(), "image", json!("bad")))
        .await
        .unwrap()
        .error(400, "INVALID_CONFIG")
        .unwrap();
    let sandboxes = client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    assert_eq!(sandboxes["pagination"]["total"], sandboxes["data"].as_array().unwrap().len());
    for sandbox in sandboxes["data"].as_array().unwrap() {
        assert_eq!(sandbox["state"], "terminated", "{sandbox}");
    }
}

#[tokio::test]
async fn requests_are_checked() {
    let (_service, client) = user().await;
    let good = body("good", "RUN true");
    for (field, value, detail) in [
        ("name", json!("Bad Name"), "name"),
        ("dockerfile", json!("FROM a\nADD https://example.com/x /x"), "dockerfile"),
        ("dockerfile", json!("FROM a\nRUN --mount=type=secret,id=x true"), "dockerfile"),
        ("dockerfile", json!(""), "dockerfile"),
        ("context", json!("ctx_unknown000"), "context"),
        ("context", json!("ctx_!"), "context"),
        ("context", json!("*"), "context"),
        ("context", json!(STANDARD.encode("no archive")), "context"),
        ("readyCommand", json!("true"), "readyCommand"),
        ("timeoutMs", json!(0), "timeoutMs"),
        ("dockerfilePath", json!("x"), "dockerfilePath"),
    ] {
        let answer = client.post(TEMPLATES, &with(good.clone(), field, value.clone())).await.unwrap();
        let error = answer.error(400, "INVALID_CONFIG").unwrap();
        assert_eq!(error["details"]["field"], detail, "{value}: {error}");
    }
    let mounting = with(good.clone(), "dockerfile", json!("FROM a\n\nRUN --mount=type=tmpfs,target=/x y"));
    let error = client.post(TEMPLATES, &mounting).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    assert_eq!(error["details"]["line"], 3, "{error}");
    for (field, value) in [("name", json!(1)), ("dockerfile", json!([])), ("buildArgs", json!({ "A": 1 }))] {
        let answer = client.post(TEMPLATES, &with(good.clone(), field, value)).await.unwrap();
        answer.error(400, "INVALID_REQUEST").unwrap();
    }
    for query in ["?state=done", "?limit=0", "?name=a&name=b"] {
        client.get(&format!("{TEMPLATES}{query}")).await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    }
    assert_eq!(client.get(TEMPLATES).await.unwrap().is(200).unwrap()["pagination"]["total"], 0);
}

#[tokio::test]
async fn a_context_is_uploaded_once_and_has_the_dockerfile() {
    let (_service, client) = user().await;
    let file = dockerfile("COPY data /data\n");
    let content = archive(&[("docker/File", &file), ("data", &"x".repeat(3 << 20))]);
    let upload = |content: Vec<u8>| {
        client.call(Method::POST, "/v1/templates/contexts").body("application/x-tar", content).send()
    };
    let uploaded = upload(content.clone()).await.unwrap().is(201).unwrap();
    assert_eq!(keys(&uploaded), ["expiresAt", "id", "sizeBytes"]);
    assert_eq!(number(&uploaded["sizeBytes"]), content.len() as u64);
    let mut asked = with(body("ctx", ""), "context", uploaded["id"].clone());
    asked.as_object_mut().unwrap().remove("dockerfile");
    let missing = client.post(TEMPLATES, &asked).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    assert!(text(&missing["message"]).contains("no file 'Dockerfile'"), "{missing}");
    let asked = with(asked, "dockerfilePath", json!("./docker/File"));
    for cached in 0..2 {
        assert_eq!(build(&client, &asked).await["steps"]["cached"], cached);
    }
    let id = create_from(&client, "ctx").await;
    assert_eq!(output(&client, &id, "wc -c < /data").await.trim(), (3 << 20).to_string());
    upload(b"no archive".to_vec()).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    let (_service, other) = user().await;
    let refused = other.post(TEMPLATES, &asked).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    assert!(text(&refused["message"]).contains("does not exist"), "{refused}");
}
