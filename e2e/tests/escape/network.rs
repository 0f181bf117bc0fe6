//! The network: a sandbox has its own, and nothing listens to it there but itself.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use e2e::Rig;

use crate::{findings, in_sandbox};

/// Families a sandbox has a use for: unix, inet, inet6, netlink, packet.
const FAMILIES: [i64; 5] = [1, 2, 10, 16, 17];

#[tokio::test(flavor = "multi_thread")]
async fn only_ordinary_sockets_can_be_made() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            my $pair = "\0" x 8;
            my %known = map {{ $_ => 1 }} ({});
            for my $family (0 .. 46) {{
                for my $kind (1, 2, 3, 5) {{
                    # The call takes the low half of its argument; a filter that looks at all of it must not be fooled.
                    for my $high (0, 1 << 32, 0xffffffff << 32) {{
                        next if $known{{$family}} && !$high;
                        my $got = syscall({}, $family | $high, $kind, 0);
                        print "family $family, kind $kind, high $high\n" if $got >= 0;
                        print "socket of family $family reaches the kernel: ", $! + 0, "\n" if $got < 0 && $! != 38;
                        $got = syscall({}, $family | $high, $kind, 0, $pair);
                        print "pair of family $family, kind $kind, high $high\n" if $got >= 0 && $family != 1;
                    }}
                }}
            }}
            "#,
            FAMILIES.map(|family| family.to_string()).join(","),
            libc::SYS_socket,
            libc::SYS_socketpair,
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_network_is_empty() {
    in_sandbox(async |rig, id| {
        // Interfaces by three ways; no route, nothing of the host's sockets.
        let devices =
            rig.output(id, "tail -n +3 /proc/net/dev | cut -d: -f1; ls /sys/class/net").await.unwrap();
        assert_eq!(devices.split_whitespace().collect::<Vec<_>>(), ["lo", "lo"]);
        assert_eq!(
            rig.output(id, "tail -n +2 /proc/net/route; tail -n +2 /proc/net/tcp; tail -n +2 /proc/net/unix")
                .await
                .unwrap(),
            ""
        );
        // A raw socket hears what passes in this network: nothing.
        let script = r#"
            socket(my $raw, 17, 3, 0x0300) or print "no raw socket, which is documented: $!\n";
            vec(my $wait = '', fileno($raw), 1) = 1;
            print "somebody's packet came by\n" if select($wait, undef, undef, 0.3);
            # Changing the network takes a capability that is not there.
            socket(my $udp, 2, 2, 0);
            my $down = pack('a16 s x22', 'lo', 0);
            print "lo taken down\n" if defined ioctl($udp, 0x8914, $down);
            "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_sockets_are_not_there() {
    in_sandbox(async |rig, id| {
        let tcp = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let name = format!("{}-abstract", rig.name);
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for listener in [tcp.set_nonblocking(true), hidden.set_nonblocking(true)] {
            listener.unwrap();
        }
        let hosts = host_addresses();
        let script = format!(
            r#"
            use Socket;
            for my $address ('127.0.0.1', {hosts}) {{
                socket(my $tcp, PF_INET, SOCK_STREAM, 0) or die;
                $SIG{{ALRM}} = sub {{ die }}; alarm 2;
                print "$address answers\n" if eval {{ connect($tcp, sockaddr_in({port}, inet_aton($address))) }};
                alarm 0;
            }}
            for my $path ("\0{name}", '{run}/sandboxes/{id}/agent.sock', '/run/systemd/notify', '/var/run/docker.sock', '/dev/log') {{
                socket(my $unix, PF_UNIX, SOCK_STREAM, 0) or die;
                print "$path answers\n" if connect($unix, pack_sockaddr_un($path));
            }}
            "#,
            run = rig.run.display(),
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
        assert!(tcp.accept().is_err() && hidden.accept().is_err(), "somebody came through");
        // No socket file of anybody's, the agent's above all.
        assert_eq!(rig.output(id, "find / -xdev -type s; find /dev /run /tmp -type s").await.unwrap(), "");
        assert_still_ours(rig, id).await;
    })
    .await;
}

/// The host's addresses but the loopback, as words of Perl.
fn host_addresses() -> String {
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap();
    let mut found: Vec<String> = Vec::new();
    let mut last = "";
    for line in table.lines() {
        if line.contains("host LOCAL") && !last.starts_with("127.") {
            found.push(format!("'{last}'"));
        }
        last = line.rsplit(' ').next().unwrap_or_default();
    }
    found.sort_unstable();
    found.dedup();
    found.join(",")
}

/// The stream to the agent is the daemon's alone: it still carries.
async fn assert_still_ours(rig: &Rig, id: &api::SandboxId) {
    assert_eq!(rig.output(id, "echo ours").await.unwrap(), "ours\n");
}
