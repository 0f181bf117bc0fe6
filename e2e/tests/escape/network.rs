//! The network: a sandbox has its own network namespace and reaches no socket of the host.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use e2e::Rig;

use crate::{findings, in_sandbox};

/// For all families, types and protocols, only Unix, TCP, UDP, ping, raw IP and route netlink sockets can be created. The others
/// fail with the errno of a kernel without them.
#[tokio::test(flavor = "multi_thread")]
async fn only_common_sockets_can_be_created() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use POSIX qw(:errno_h);
            my $pair = "\0" x 8;
            my %ordinary = (1 => 'unix', 2 => 1, 10 => 58, 16 => 'netlink');
            sub expected {{
                my ($family, $kind, $protocol) = @_;
                my $ordinary = $ordinary{{$family}} or return EAFNOSUPPORT;
                return 0 if $ordinary eq 'unix';
                return $protocol ? EPROTONOSUPPORT : 0 if $ordinary eq 'netlink';
                return $kind >= 4 && $kind <= 7 ? ESOCKTNOSUPPORT : -1 if $kind < 1 || $kind > 3;
                return $protocol > 255 ? EPROTONOSUPPORT : 0 if $kind == 3;
                my @known = $kind == 1 ? (0, 6) : (0, 17, $ordinary);
                return 0 if grep {{ $_ == $protocol }} @known;
                return $protocol > $known[$kind == 1 ? 1 : $family == 2 ? 1 : 2] ? EPROTONOSUPPORT : -1;
            }}
            my $wrong = 0;
            for my $family (0 .. 50) {{
                for my $kind (0 .. 15) {{
                    for my $protocol (0 .. 300) {{
                        # The kernel uses the low half of the arguments; a filter that compares all bits must not be bypassed.
                        for my $high (0, 1 << 32, 0xffffffff << 32) {{
                            my $got = syscall({socket}, $family | $high, $kind | 02000000, $protocol);
                            my $errno = $got < 0 ? $! + 0 : 0;
                            POSIX::close($got) if $got >= 0;
                            my $expected = $high ? EAFNOSUPPORT : expected($family, $kind, $protocol);
                            # 0: allowed by the filter, but the kernel may refuse the combination. -1: refused with any errno.
                            next if $expected == 0 ? $errno != ENOSYS : $expected < 0 ? $errno : $errno == $expected;
                            print "family $family, type $kind, protocol $protocol, high $high: $errno\n" if $wrong++ < 20;
                        }}
                    }}
                    my $got = syscall({socketpair}, $family, $kind, 0, $pair);
                    print "pair of family $family, type $kind\n" if $family != 1 && ($got >= 0 || $! != EAFNOSUPPORT);
                }}
            }}
            "#,
            socket = libc::SYS_socket,
            socketpair = libc::SYS_socketpair,
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// Common uses of sockets work, and other protocols fail as on a kernel without them.
#[tokio::test(flavor = "multi_thread")]
async fn common_programs_can_use_sockets() {
    in_sandbox(async |rig, id| {
        let script = r#"
            use Socket; use POSIX qw(:errno_h);
            for my $allowed ([PF_INET, SOCK_STREAM, 0], [PF_INET, SOCK_STREAM, 6], [PF_INET6, SOCK_STREAM, 0], [PF_INET, SOCK_DGRAM, 17],
                [PF_INET6, SOCK_DGRAM, 0], [PF_UNIX, SOCK_STREAM, 0], [PF_UNIX, SOCK_DGRAM, 0], [PF_UNIX, 5, 0], [16, SOCK_RAW, 0],
                [16, SOCK_DGRAM, 0], [PF_INET, SOCK_RAW, 1], [PF_INET6, SOCK_RAW, 58], [PF_INET, SOCK_RAW, 255]) {
                socket(my $socket, $allowed->[0], $allowed->[1] | 02004000, $allowed->[2]) or print "@$allowed: $!\n";
            }
            socketpair(my $left, my $right, PF_UNIX, SOCK_STREAM, 0) or print "pair: $!\n";
            # Go tries MPTCP first, PAM and sudo the audit system, ss socket diagnosis.
            for my $other ([PF_INET, SOCK_STREAM, 262, EPROTONOSUPPORT], [16, SOCK_RAW, 9, EPROTONOSUPPORT], [16, SOCK_RAW, 4, EPROTONOSUPPORT],
                [PF_INET, SOCK_STREAM, 132, EPROTONOSUPPORT], [PF_INET, 5, 0, 94], [17, SOCK_RAW, 0, EAFNOSUPPORT], [40, SOCK_STREAM, 0, EAFNOSUPPORT]) {
                my ($family, $kind, $protocol, $expected) = @$other;
                socket(my $socket, $family, $kind, $protocol) and print "@$other\n";
                print "@$other: $!\n" if $! != $expected;
            }
            # An ICMP echo to itself, as ping sends it as root.
            socket(my $ping, PF_INET, SOCK_RAW, 1);
            my $sum = 0xffff - 0x0800 - 7 - 1;
            send($ping, pack('CCnnn', 8, 0, $sum, 7, 1), 0, sockaddr_in(0, inet_aton('127.0.0.1'))) or print "no echo sent: $!\n";
            my $received = 0;
            while (!$received) {
                vec(my $wait = '', fileno($ping), 1) = 1;
                last unless select($wait, undef, undef, 2);
                recv($ping, my $packet, 100, 0);
                $received = unpack('x20 C', $packet) == 0;
            }
            print "no echo received\n" unless $received;
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
        assert_eq!(rig.output(id, "getent hosts localhost >/dev/null; id -un; getent passwd root").await.unwrap().lines().next(), Some("root"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_of_a_sandbox_is_empty() {
    in_sandbox(async |rig, id| {
        // No interface except lo, no routes, no sockets of the host.
        let devices =
            rig.output(id, "tail -n +3 /proc/net/dev | cut -d: -f1; ls /sys/class/net").await.unwrap();
        assert_eq!(devices.split_whitespace().collect::<Vec<_>>(), ["lo", "lo"]);
        assert_eq!(
            rig.output(id, "tail -n +2 /proc/net/route; tail -n +2 /proc/net/tcp; tail -n +2 /proc/net/unix")
                .await
                .unwrap(),
            ""
        );
        // Raw sockets receive nothing. ICMP and TCP, because packet sockets are refused.
        let script = r#"
            print "a packet socket\n" if socket(my $packet, 17, 3, 0x0300);
            socket(my $tcp, 2, 3, 6) or print "no raw socket, which is documented: $!\n";
            socket(my $raw, 2, 3, 1) or print "no raw socket, which is documented: $!\n";
            vec(my $wait = '', fileno($raw), 1) = 1;
            vec($wait, fileno($tcp), 1) = 1;
            print "a packet was received\n" if select($wait, undef, undef, 0.3);
            # Changes of the network need a capability that the sandbox does not have.
            socket(my $udp, 2, 2, 0);
            my $down = pack('a16 s x22', 'lo', 0);
            print "lo taken down\n" if defined ioctl($udp, 0x8914, $down);
            "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_sockets_are_not_reachable() {
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
        assert!(tcp.accept().is_err() && hidden.accept().is_err(), "a connection reached the host");
        // No socket file exists, not even the agent's.
        assert_eq!(rig.output(id, "find / -xdev -type s; find /dev /run /tmp -type s").await.unwrap(), "");
        assert_link_works(rig, id).await;
    })
    .await;
}

/// The host's addresses except loopback, as Perl strings.
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

/// The link to the agent still works.
async fn assert_link_works(rig: &Rig, id: &api::SandboxId) {
    assert_eq!(rig.output(id, "echo ours").await.unwrap(), "ours\n");
}
