//! TLS, forwarded by the server name without decryption.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egress::{Reason, ResolveFailure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::fixture::{Fixture, echo_server, reset, server, server_address, take};

/// A server's settings and those of a client that trusts it.
pub struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

pub fn tls() -> Tls {
    let names = ["good.test", "evil.test"].map(String::from);
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Tls { acceptor: Arc::new(server).into(), connector: Arc::new(client).into() }
}

/// Sends back what it gets, inside of TLS.
pub async fn tls_echo(tls: &Tls) -> SocketAddrV4 {
    let acceptor = tls.acceptor.clone();
    server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..read]).await.unwrap();
                stream.flush().await.unwrap();
            }
            let _ = stream.shutdown().await;
        }
    })
    .await
}

pub async fn handshake(
    tls: &Tls,
    name: &str,
    stream: TcpStream,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    tls.connector.connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// A client's first bytes.
pub fn hello(name: &str) -> Vec<u8> {
    let config = tls().connector.config().clone();
    let mut client = ClientConnection::new(config, ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn an_allowed_name_is_forwarded_without_decryption() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let tls = tls();
    let address = tls_echo(&tls).await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = handshake(&tls, "good.test", fixture.dial(address).await).await.unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    let (mut reading, mut writing) = tokio::io::split(&mut client);
    let mut came = vec![0; sent.len()];
    let (wrote, read) = tokio::join!(
        async {
            writing.write_all(&sent).await?;
            writing.flush().await
        },
        reading.read_exact(&mut came)
    );
    wrote.unwrap();
    read.unwrap();
    assert!(came == sent);
    client.shutdown().await.unwrap();
    assert_eq!(client.read(&mut came).await.unwrap(), 0, "it ends with a goodbye");
    fixture.no_refusal();
}

#[tokio::test]
async fn other_names_are_reset_and_reported() {
    let mut fixture = Fixture::new(&["good.test", "*.below.test"]).await;
    let tls = tls();
    let address = tls_echo(&tls).await;
    for name in ["good.test", "evil.test", "below.test"] {
        fixture.name(name, &[*address.ip()]);
    }
    fixture.learn("good.test", *address.ip());
    for name in ["evil.test", "below.test", "x.good.test", "good.test.evil.test"] {
        let mut client = fixture.dial(address).await;
        client.write_all(&hello(name)).await.unwrap();
        assert_eq!(reset(&mut client).await, b"", "{name}");
        assert_eq!(fixture.refusal().await, (Reason::NotAllowed, Some(name.to_owned())));
    }
}

#[tokio::test]
async fn an_allowed_name_does_not_open_other_addresses() {
    let mut fixture = Fixture::new(&["good.test", "also.test"]).await;
    let (tls, good, also) = (tls(), echo_server().await, echo_server().await);
    let evil = tls_echo(&tls).await;
    fixture.name("good.test", &[*good.ip()]);
    // Known by another allowed name is not known by this one.
    fixture.learn("also.test", *also.ip());
    for address in [evil, also] {
        let mut client = fixture.dial(address).await;
        client.write_all(&hello("good.test")).await.unwrap();
        assert_eq!(reset(&mut client).await, b"");
        assert_eq!(fixture.refusal().await, (Reason::WrongAddress, Some("good.test".into())));
    }
}

#[tokio::test]
async fn a_hello_without_a_name_is_refused() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = echo_server().await;
    fixture.learn("good.test", *address.ip());
    // rustls sends no name where it was given an address.
    let hello = hello("192.0.2.1");
    for port in [address.port(), 443] {
        let mut client = fixture.dial(SocketAddrV4::new(*address.ip(), port)).await;
        client.write_all(&hello).await.unwrap();
        assert_eq!(reset(&mut client).await, b"");
        assert_eq!(fixture.refusal().await, (Reason::NoName, None));
    }
}

#[tokio::test]
async fn a_hello_in_single_bytes_and_single_byte_records_passes() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = echo_server().await;
    fixture.name("good.test", &[*address.ip()]);
    let hello = hello("good.test");
    let mut client = fixture.dial(address).await;
    for byte in &hello {
        client.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(take(&mut client, hello.len()).await, hello);
    let records: Vec<u8> = hello[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    let mut client = fixture.dial(address).await;
    for chunk in records.chunks(7) {
        client.write_all(chunk).await.unwrap();
    }
    assert_eq!(take(&mut client, records.len()).await, records);
    fixture.no_refusal();
}

#[tokio::test]
async fn a_slow_hello_passes_and_one_that_is_too_slow_does_not() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let address = echo_server().await;
    fixture.name("good.test", &[*address.ip()]);
    let hello = hello("good.test");
    let mut client = fixture.dial(address).await;
    for part in hello.chunks(hello.len() / 4 + 1) {
        client.write_all(part).await.unwrap();
        sleep(Duration::from_millis(400)).await;
    }
    assert_eq!(take(&mut client, hello.len()).await, hello);
    let mut client = fixture.dial(address).await;
    client.write_all(&hello[..50]).await.unwrap();
    let start = Instant::now();
    reset(&mut client).await;
    assert!((5..15).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(fixture.refusal().await, (Reason::Malformed, None));
}

#[tokio::test]
async fn a_changed_answer_leads_to_the_new_address() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let tls = tls();
    let new = tls_echo(&tls).await;
    let old = server_address();
    // The answer has expired, but the client still uses it.
    let past = Instant::now() - Duration::from_secs(1000);
    fixture.guest.learn("good.test", &[old], Duration::from_secs(60), past);
    fixture.name("good.test", &[*new.ip()]);
    let to_old = fixture.dial(SocketAddrV4::new(old, new.port())).await;
    let mut client = handshake(&tls, "good.test", to_old).await.unwrap();
    client.write_all(b"hi").await.unwrap();
    let mut came = [0; 2];
    client.read_exact(&mut came).await.unwrap();
    assert_eq!(&came, b"hi");
    fixture.no_refusal();
}

/// Settings of a server that accepts no key of the first hello, and sends a HelloRetryRequest.
fn asking_again() -> Tls {
    let names = ["good.test"].map(String::from);
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let particular = rustls::crypto::CryptoProvider {
        kx_groups: vec![rustls::crypto::ring::kx_group::SECP384R1],
        ..provider.clone()
    };
    let server = ServerConfig::builder_with_provider(particular.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Tls { acceptor: Arc::new(server).into(), connector: Arc::new(client).into() }
}

#[tokio::test]
async fn a_handshake_of_two_hellos_passes() {
    let mut fixture = Fixture::new(&["good.test"]).await;
    let tls = asking_again();
    let address = tls_echo(&tls).await;
    fixture.name("good.test", &[*address.ip()]);
    let mut client = handshake(&tls, "good.test", fixture.dial(address).await).await.unwrap();
    let kind = client.get_ref().1.handshake_kind();
    assert_eq!(kind, Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
    client.write_all(b"hi").await.unwrap();
    let mut came = [0; 2];
    client.read_exact(&mut came).await.unwrap();
    assert_eq!(&came, b"hi");
    fixture.no_refusal();
}

/// OpenSSL uses the name in the second hello.
#[tokio::test]
async fn a_second_hello_for_another_name_is_reset() {
    let hellos = ["good.test", "evil.test", "192.0.2.1"].map(hello);
    let [good, evil, unnamed] = &hellos;
    // The second hello may arrive before the HelloRetryRequest.
    for waits in [true, false] {
        for (second, name) in [(evil, Some("evil.test".to_owned())), (unnamed, None), (good, None)] {
            let mut fixture = Fixture::new(&["good.test"]).await;
            let (out, mut seen) = tokio::sync::mpsc::unbounded_channel();
            let first_bytes = good.len();
            let address = server(move |mut stream| {
                let out = out.clone();
                async move {
                    let mut first = vec![0; first_bytes];
                    stream.read_exact(&mut first).await.unwrap();
                    // The HelloRetryRequest may be split.
                    let question = asks_again();
                    stream.write_all(&question[..50]).await.unwrap();
                    sleep(Duration::from_millis(20)).await;
                    stream.write_all(&question[50..]).await.unwrap();
                    let mut more = [0; 4096];
                    while let Ok(read @ 1..) = stream.read(&mut more).await {
                        let _ = out.send(more[..read].to_vec());
                    }
                }
            })
            .await;
            fixture.name("good.test", &[*address.ip()]);
            let mut client = fixture.dial(address).await;
            let change = [0x14, 3, 3, 0, 1, 1];
            if waits {
                client.write_all(good).await.unwrap();
                assert_eq!(take(&mut client, asks_again().len()).await, asks_again());
                client.write_all(&[&change[..], second].concat()).await.unwrap();
            } else {
                client.write_all(&[&good[..], &change, second].concat()).await.unwrap();
            }
            if second == good {
                assert_eq!(seen.recv().await.unwrap(), [&change[..], good].concat());
                fixture.no_refusal();
            } else {
                assert_eq!(fixture.refusal().await, (Reason::NameChanged, name));
                sleep(Duration::from_millis(50)).await;
                assert!(seen.try_recv().is_err(), "something of it came");
            }
        }
    }
}

/// What a server answers that asks for another hello.
fn asks_again() -> Vec<u8> {
    const RANDOM: [u8; 32] = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ];
    [&[0x16, 3, 3, 0, 0x58, 2, 0, 0, 0x54, 3, 3][..], &RANDOM, &[0; 50]].concat()
}

#[tokio::test]
async fn upstream_failures_are_not_reported_as_refusals() {
    let mut fixture = Fixture::new(&["good.test", "lost.test"]).await;
    // Nobody listens there.
    let address = SocketAddrV4::new(server_address(), 4433);
    fixture.name("good.test", &[*address.ip()]);
    let mut client = fixture.dial(address).await;
    client.write_all(&hello("good.test")).await.unwrap();
    assert_eq!(reset(&mut client).await, b"");
    fixture.no_refusal();
    fixture.broken_name("lost.test", ResolveFailure::upstream("it is down"));
    let mut client = fixture.dial(address).await;
    client.write_all(&hello("lost.test")).await.unwrap();
    assert_eq!(reset(&mut client).await, b"");
    assert_eq!(fixture.refusal().await, (Reason::Unresolved, Some("lost.test".into())));
}
