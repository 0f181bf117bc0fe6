//! Programs in place of the code interpreter, and images without one.

use e2e::service::Client;
use serde_json::json;

use crate::{action_path, create_sandbox, output, user};

/// A server in Perl, which every Debian has. It answers each connection with PERL.
const SERVER: &str = r#"use IO::Socket::INET;
my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 49999, Listen => 9, ReuseAddr => 1) or exit 0;
exit 0 if fork;
setpgrp; open STDOUT, '>/dev/null'; open STDERR, '>/dev/null'; $SIG{PIPE} = 'IGNORE'; $SIG{CHLD} = 'IGNORE';
my $ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
while (my $c = $s->accept) { next if fork; my $b; sysread $c, $b, 65536; PERL; close $c; exit }
"#;

/// Replaces the interpreter by a program that runs this after each request.
async fn answer_with(client: &Client, id: &str, perl: &str) {
    let path = "/usr/local/bin/code-interpreter";
    let body = json!({
        // Until the former one is gone, it accepts connections.
        "command": format!("pkill -KILL code-interp; while pgrep code-interp > /dev/null; do sleep 0.01; done; (echo '#!/usr/bin/perl'; cat) > {path}; chmod 755 {path}"),
        "stdin": SERVER.replace("PERL", perl),
    });
    client.post(&action_path(id, "execute"), &body).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn an_image_without_an_interpreter_says_what_to_do() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let answer = client.post(&action_path(&id, "code"), &json!({ "code": "1" })).await.unwrap();
    let error = answer.error(409, "NO_INTERPRETER").unwrap();
    assert!(error["message"].as_str().unwrap().contains("'code-interpreter'"), "{error}");
    let contexts = client.get(&action_path(&id, "code/contexts")).await.unwrap();
    contexts.error(409, "NO_INTERPRETER").unwrap();
}

#[tokio::test]
async fn a_hostile_interpreter_causes_an_error_and_nothing_else() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for perl in [
        "print $c 'garbage' x 100",
        "1",
        r#"print $c "HTTP/1.1 200 OK\r\n" . ("x: y\r\n" x 10000)"#,
        r#"print $c $ok . "not json\n""#,
        r#"print $c $ok . ("[" x 100000) . "\n""#,
        r#"print $c $ok . '{"type":"result","is_main_result":7,"png":{}}' . "\n""#,
        r#"print $c $ok . '{"type":"stdout","text":"unfinished'"#,
        r#"print $c $ok; print $c 'x' x 1048576 for 1 .. 200"#,
        r#"print $c $ok; print $c '{"type":"stdout","text":"' . ('x' x 1048576) . "\"}\n" for 1 .. 200"#,
        r#"print $c $ok . '{"type":"stdout","text":"a"}' . "\n""#,
        r#"print $c "HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nno\x1b""#,
        r#"print $c "HTTP/1.1 200 OK\r\nX-Context-Id: ../../x\r\nConnection: close\r\n\r\n""#,
    ] {
        answer_with(&client, &id, perl).await;
        let body = json!({ "code": "1", "timeoutMs": 20_000 });
        let answer = client.post(&action_path(&id, "code"), &body).await.unwrap();
        assert!(matches!(answer.status, 502 | 503), "{perl}: {} {:.300}", answer.status, answer.text());
        let answer = client.get(&action_path(&id, "code/contexts")).await.unwrap();
        assert!(answer.status >= 400, "{perl}: {:.300}", answer.text());
    }
    // Older programs end so when a context is restarted while its code runs.
    let ended = r#"print $c "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n""#;
    answer_with(&client, &id, ended).await;
    let body = json!({ "code": "1", "timeoutMs": 20_000 });
    let execution = client.post(&action_path(&id, "code"), &body).await.unwrap().is(200).unwrap();
    assert_eq!(execution["exception"]["name"], "KernelDied");
    for perl in
        ["sleep 600", r#"print $c "HTTP/1.1 500 No\r\nContent-Length: 30\r\n\r\n"; $c->flush; sleep 600"#]
    {
        answer_with(&client, &id, perl).await;
        let body = json!({ "code": "1", "timeoutMs": 500 });
        let answer = client.post(&action_path(&id, "code"), &body).await.unwrap();
        answer.error(408, "EXECUTION_TIMEOUT").unwrap();
    }
    // The sandbox still works.
    assert_eq!(output(&client, &id, "echo ok").await, "ok\n");
}
