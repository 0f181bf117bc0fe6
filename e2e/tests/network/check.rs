//! The verdicts of `sandboxd egress check` agree with what happens.

use std::net::Ipv4Addr;

use e2e::internet::DnsAnswer;
use serde_json::json;

use crate::guest::Guest;
use crate::shared_net;

#[tokio::test]
async fn verdicts_of_egress_check_match_actual_traffic() {
    let net = shared_net().await;
    let (listed, other) = (net.site("check-listed"), net.site("check-other"));
    let below = net.site("x.check-wild");
    net.internet
        .names()
        .set("check-private.web.example", DnsAnswer::A(vec![Ipv4Addr::new(10, 99, 4, 4)], 60));
    net.internet.names().set("check-dead.web.example", DnsAnswer::Failure);
    let allow = json!([
        listed.name,
        "*.check-wild.web.example",
        "check-private.web.example",
        "check-dead.web.example",
        "check-none.web.example"
    ]);
    let cases = [
        // Host, port, whether it passes under default deny, and under default allow.
        (listed.name.clone(), 80, true, true),
        (listed.name.clone(), 443, true, true),
        (listed.name.to_uppercase(), 8443, true, true),
        (other.name.clone(), 443, false, true),
        (below.name.clone(), 443, true, true),
        ("check-wild.web.example".to_owned(), 443, false, false),
        ("check-private.web.example".to_owned(), 80, false, false),
        ("check-dead.web.example".to_owned(), 80, false, false),
        ("check-none.web.example".to_owned(), 80, false, false),
        (other.address.to_string(), 80, false, true),
        (other.address.to_string(), 8443, false, true),
        ("169.254.169.254".to_owned(), 80, false, false),
        ("10.1.2.3".to_owned(), 443, false, false),
        ("192.0.2.1".to_owned(), 80, false, false),
        ("127.0.0.1".to_owned(), 80, false, false),
        ("[2001:db8:ffff::1]".to_owned(), 80, false, false),
    ];
    for (policy, strict) in
        [(json!({ "default": "deny", "allow": allow }), true), (json!({ "default": "allow" }), false)]
    {
        let guest = Guest::new(&net, policy).await;
        for (host, port, under_deny, under_allow) in &cases {
            let expected = if strict { *under_deny } else { *under_allow };
            let scheme = if matches!(port, 443 | 8443) { "https" } else { "http" };
            let response =
                guest.run(&format!("curl -sS -k --max-time 5 {scheme}://{host}:{port}/hello")).await;
            let passed = response["stdout"].as_str().unwrap().starts_with("hello");
            assert_eq!(passed, expected, "{host}:{port} under {strict}: {response}");
            let program = net.service.program().unwrap();
            let mut program = program;
            let output =
                program.args(["egress", "check", &guest.id, &format!("{host}:{port}")]).output().unwrap();
            let result = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert_eq!(
                output.status.code(),
                Some(i32::from(!expected)),
                "{host}:{port} under {strict}: {result}"
            );
            assert!(!result.trim().is_empty());
        }
        guest.terminate().await;
    }
    let output = net
        .service
        .program()
        .unwrap()
        .args(["egress", "check", "sb_00000000000000000000", "a.example"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
