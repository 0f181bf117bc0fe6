//! First bytes in pieces, slow, too long or invalid: valid ones work, invalid ones are refused, and no other client waits.

use e2e::internet::Site;

use crate::shared_net;

/// Sends a ClientHello and reports the answer: a TLS record (22), an alert (21), or nothing.
fn client_hello(name: &str, address: &str, how: &str) -> String {
    format!(
        "h = hello('{name}'); s = tcp('{address}', 443, 20); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n\
         def send():\n    {}\n\
         try:\n    send(); got = s.recv(5)\nexcept OSError as error:\n    got = b''\nprint(got[0] if got else 'nothing')",
        how.replace('\n', "\n    ")
    )
}

/// A handshake message split into records of a given length.
const RECORDS: &str = "body = h[5:]\n\
    s.sendall(b''.join(b'\\x16\\x03\\x01' + struct.pack('!H', len(body[at:at + SIZE])) + body[at:at + SIZE] \
    for at in range(0, len(body), SIZE)))";

#[tokio::test]
async fn fragmented_and_slow_hellos_are_accepted() {
    let net = shared_net().await;
    let (Site { name, address }, other) = (net.site("pieces-listed"), net.site("pieces-other"));
    let guest = net.strict(&[&name]).await;
    let by_bytes = "for at in range(len(h)):\n    s.sendall(h[at:at + 1])";
    let slowly = "for at in range(0, len(h), 100):\n    s.sendall(h[at:at + 100]); time.sleep(0.3)";
    let tiny = RECORDS.replace("SIZE", "7");
    let large = RECORDS.replace("SIZE", "100");
    for how in ["s.sendall(h)", by_bytes, slowly, large.as_str(), tiny.as_str()] {
        let result = guest.python(&client_hello(&name, &name, how)).await;
        assert_eq!(result, "22\n", "{how}");
        // The same with another name: no answer, and nothing arrives.
        let result = guest.python(&client_hello(&other.name, &name, how)).await;
        assert_eq!(result, "nothing\n", "{how}");
        let result = guest.python(&client_hello(&name, &other.address.to_string(), how)).await;
        assert!(result == "nothing\n" || !address.is_unspecified(), "{how}");
    }
    guest.wait_for_refusal(&["not-allowed"], &other.name).await;
    net.assert_no_packets_to(other.address);
    // HTTP requests too.
    let slow_request = format!(
        "s = tcp('{name}', 80, 20)\nfor byte in request('{name}'):\n    s.send(bytes([byte])); time.sleep(0.01)\nprint(all_of(s))"
    );
    assert!(guest.python(&slow_request).await.contains("hello host"));
}

#[tokio::test]
async fn invalid_and_endless_hellos_are_refused() {
    let net = shared_net().await;
    let Site { name, .. } = net.site("broken-listed");
    let other = net.site("broken-other");
    let guest = net.strict(&[&name]).await;
    for how in [
        // Wrong lengths.
        "s.sendall(h[:3] + b'\\xff\\xff' + h[5:])",
        "s.sendall(h[:6] + b'\\x00\\x00\\x05' + h[9:])",
        "s.sendall(h[:43] + b'\\xff' + h[44:])",
        // Another TLS version, another message, an incomplete record.
        "s.sendall(b'\\x80\\x2e\\x01\\x03\\x01' + h[5:])",
        "s.sendall(b'\\x16\\x03\\x01\\x00\\x00' * 50)",
        "s.sendall(b'\\x15' + h[1:])",
        "s.sendall(h[:20]); s.shutdown(socket.SHUT_WR)",
        "s.sendall(os.urandom(100000))",
    ] {
        let result = guest.python(&client_hello(&name, &other.address.to_string(), how)).await;
        assert!(result == "nothing\n" || result == "21\n", "{how}: {result}");
    }
    net.assert_no_packets_to(other.address);
    // Many incomplete handshakes do not delay other clients.
    let holds = format!(
        "held = [tcp('{name}', 443) for n in range(300)]\n[s.send(hello('{name}')[:40]) for s in held]\n\
         t = time.time(); s = tcp('{name}', 80); s.send(request('{name}')); assert b'hello host' in all_of(s)\n\
         assert time.time() - t < 2, time.time() - t\nprint('served')"
    );
    assert_eq!(guest.python(&holds).await, "served\n");
    // A head that never ends is cut off, and does not fill memory.
    let endless = format!(
        "s = tcp('{name}', 80); s.send(b'GET / HTTP/1.1\\r\\n')\ntry:\n    for n in range(20000):\n        \
         s.send(b'X-Long: ' + b'x' * 1000 + b'\\r\\n')\n    print('taken')\nexcept OSError:\n    print('cut off')"
    );
    assert_eq!(guest.python(&endless).await, "cut off\n");
}

/// A silent connection is closed eventually.
#[tokio::test]
async fn a_silent_connection_is_closed() {
    let net = shared_net().await;
    let other = net.site("silent-other");
    let Site { name, .. } = net.site("silent-listed");
    let guest = net.strict(&[&name]).await;
    let program = format!(
        "s = tcp('{}', 443, 45)\nt = time.time()\ngot = all_of(s)\nprint(got, time.time() - t)",
        other.address
    );
    let result = guest.python(&program).await;
    assert!(!result.contains("silence"), "{result}");
    net.assert_no_packets_to(other.address);
}
