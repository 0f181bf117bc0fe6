//! Private ranges that the operator opens are reachable if the policy allows them; nothing else is.

use std::net::{Ipv4Addr, TcpListener};

use e2e::internet::DnsAnswer;
use e2e::service::ServiceOptions;

use crate::TestNet;

#[tokio::test]
async fn only_the_listed_private_ranges_are_open() {
    let options = ServiceOptions::default().with(
        "egress",
        "allow_private",
        r#"["10.50.0.0/24", "192.168.77.9", "192.0.2.129"]"#,
    );
    let net = TestNet::new(options).await;
    let (inside, beside) = (Ipv4Addr::new(10, 50, 0, 7), Ipv4Addr::new(10, 50, 1, 7));
    let (lan, lan_beside) = (Ipv4Addr::new(192, 168, 77, 9), Ipv4Addr::new(192, 168, 77, 10));
    for (name, address) in [("in.lan.example", inside), ("beside.lan.example", beside)] {
        net.internet.names().set(name, DnsAnswer::A(vec![address], 60));
    }
    let open = net.open().await;
    let strict = net.strict(&["in.lan.example", "beside.lan.example"]).await;
    let curl = |host: &str| format!("curl -sS --max-time 4 http://{host}/hello");
    for host in [inside.to_string(), lan.to_string(), "in.lan.example".to_owned()] {
        assert!(open.output(&curl(&host)).await.starts_with("hello"));
    }
    assert!(strict.output(&curl("in.lan.example")).await.starts_with("hello"));
    // Opened by the operator, but not listed by a policy.
    strict.fails(&curl(&lan.to_string())).await;
    for guest in [&open, &strict] {
        for host in [
            beside.to_string(),
            lan_beside.to_string(),
            "beside.lan.example".to_owned(),
            "192.168.77.1".to_owned(),
            "169.254.169.254".to_owned(),
        ] {
            guest.fails(&curl(&host)).await;
        }
    }
    for address in [beside, lan_beside] {
        net.assert_no_packets_to(address);
    }
    // An address of the host is opened only by its own entry: 192.0.2.129 is, 192.168.77.1 is not.
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = |address: &str| {
        format!("python3 -c \"import socket; socket.create_connection(('{address}', {port}), 3)\"")
    };
    open.output(&connect("192.0.2.129")).await;
    open.fails(&connect("192.0.2.1")).await;
    open.fails(&connect("192.168.77.1")).await;
    strict.fails(&format!("curl -sS --max-time 3 http://192.168.77.1:{port}/")).await;
}
