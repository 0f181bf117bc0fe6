//! The network: a sandbox has its own, and nothing listens to it there but itself.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use e2e::Rig;

use crate::{findings, in_sandbox};

/// Every family, type and protocol: only Unix, TCP, UDP, ping, raw IP and route netlink sockets can be made. The errno of the others is
/// that of a kernel without them.
#[tokio::test(flavor = "multi_thread")]
async fn only_ordinary_sockets_can_be_made() {
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
                        # The call takes the low half of its arguments; a filter that looks at all of it must not be fooled.
                        for my $high (0, 1 << 32, 0xffffffff << 32) {{
                            my $got = syscall({socket}, $family | $high, $kind | 02000000, $protocol);
                            my $errno = $got < 0 ? $! + 0 : 0;
                            POSIX::close($got) if $got >= 0;
                            my $expected = $high ? EAFNOSUPPORT : expected($family, $kind, $protocol);
                            # Allowed by the filter: the kernel may still refuse the combination. -1: refused with any errno.
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

/// What programs commonly do with sockets still works, and their attempts at other protocols end as on a kernel without them.
#[tokio::test(flavor = "multi_thread")]
async fn ordinary_programs_find_the_sockets_they_need() {
    in_sandbox(async |rig, id| {
        let script = r#"
            use Socket; use POSIX qw(:errno_h);
            for my $made ([PF_INET, SOCK_STREAM, 0], [PF_INET, SOCK_STREAM, 6], [PF_INET6, SOCK_STREAM, 0], [PF_INET, SOCK_DGRAM, 17],
                [PF_INET6, SOCK_DGRAM, 0], [PF_UNIX, SOCK_STREAM, 0], [PF_UNIX, SOCK_DGRAM, 0], [PF_UNIX, 5, 0], [16, SOCK_RAW, 0],
                [16, SOCK_DGRAM, 0], [PF_INET, SOCK_RAW, 1], [PF_INET6, SOCK_RAW, 58], [PF_INET, SOCK_RAW, 255]) {
                socket(my $socket, $made->[0], $made->[1] | 02004000, $made->[2]) or print "@$made: $!\n";
            }
            socketpair(my $left, my $right, PF_UNIX, SOCK_STREAM, 0) or print "pair: $!\n";
            # Go listens by MPTCP first, PAM and sudo look for the audit system, ss for the diagnosis of sockets.
            for my $other ([PF_INET, SOCK_STREAM, 262, EPROTONOSUPPORT], [16, SOCK_RAW, 9, EPROTONOSUPPORT], [16, SOCK_RAW, 4, EPROTONOSUPPORT],
                [PF_INET, SOCK_STREAM, 132, EPROTONOSUPPORT], [PF_INET, 5, 0, 94], [17, SOCK_RAW, 0, EAFNOSUPPORT], [40, SOCK_STREAM, 0, EAFNOSUPPORT]) {
                my ($family, $kind, $protocol, $expected) = @$other;
                socket(my $socket, $family, $kind, $protocol) and print "@$other\n";
                print "@$other: $!\n" if $! != $expected;
            }
            # An echo by ICMP to itself, as ping does as root.
            socket(my $ping, PF_INET, SOCK_RAW, 1);
            my $sum = 0xffff - 0x0800 - 7 - 1;
            send($ping, pack('CCnnn', 8, 0, $sum, 7, 1), 0, sockaddr_in(0, inet_aton('127.0.0.1'))) or print "no echo sent: $!\n";
            my $heard = 0;
            while (!$heard) {
                vec(my $wait = '', fileno($ping), 1) = 1;
                last unless select($wait, undef, undef, 2);
                recv($ping, my $packet, 100, 0);
                $heard = unpack('x20 C', $packet) == 0;
            }
            print "no echo came back\n" unless $heard;
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
        assert_eq!(rig.output(id, "getent hosts localhost >/dev/null; id -un; getent passwd root").await.unwrap().lines().next(), Some("root"));
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
        // A raw socket hears what passes in this network: nothing. ICMP and TCP, since there are no packet sockets.
        let script = r#"
            print "a packet socket\n" if socket(my $packet, 17, 3, 0x0300);
            socket(my $tcp, 2, 3, 6) or print "no raw socket, which is documented: $!\n";
            socket(my $raw, 2, 3, 1) or print "no raw socket, which is documented: $!\n";
            vec(my $wait = '', fileno($raw), 1) = 1;
            vec($wait, fileno($tcp), 1) = 1;
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
