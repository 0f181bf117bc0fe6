//! What a sandbox takes of the kernel's tables and of memory that no cgroup is charged for.

use std::time::Duration;

use api::SandboxId;
use e2e::{Rig, RigOptions, wait_until, with_rig};

use crate::machine::cgroup;
use crate::{findings, in_sandbox};

/// Takes as many as possible of the tables that the kernel limits for each user, and prints how many of each.
const TAKE: &str = r#"
    use POSIX; our @held;
    sub take { my ($name, $most, $one) = @_; my $count = 0; while ($count < $most && $one->($count)) { $count++ } print "$name $count\n" }
    take('inotify', 100_000, sub { my $fd = syscall(INOTIFY, 0); $fd >= 0 });
    take('terminals', 100_000, sub { sysopen(my $file, '/dev/ptmx', 2) or return 0; push @held, $file; 1 });
    take('queues', 1_000, sub { my $name = "q$_[0]"; syscall(MQ_OPEN, $name, 0102, 0600, 0) >= 0 });
    take('timers', 200_000, sub { my $id = pack('q', 0); syscall(TIMER_CREATE, 1, 0, $id) == 0 });
    $| = 1; print "done\n";
"#;

fn taking(then: &str) -> String {
    let script = TAKE.replace("INOTIFY", &libc::SYS_inotify_init1.to_string());
    let script = script.replace("MQ_OPEN", &libc::SYS_mq_open.to_string());
    script.replace("TIMER_CREATE", &libc::SYS_timer_create.to_string()) + then
}

fn counts(text: &str) -> Vec<(&str, u32)> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, count)| (name, count.parse().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sandbox_takes_a_table_of_the_kernel_from_another() {
    if RigOptions::default().runtime.is_some() {
        // Runtimes create the user namespaces of all sandboxes as the same user.
        return;
    }
    with_rig(RigOptions::default(), async |rig| {
        let (left, right) = (rig.create().await.unwrap(), rig.create().await.unwrap());
        let alone = rig.perl(&right, &taking("")).await.unwrap();
        let hold = taking("sleep 600").replace('\'', r"'\''");
        let started = format!("perl -e '{hold}' > /workspace/taken 2>&1 & until grep -q done /workspace/taken; do sleep 0.05; done; cat /workspace/taken");
        let taken = rig.output(&left, &started).await.unwrap();
        let beside = rig.perl(&right, &taking("")).await.unwrap();
        for other in [&taken, &beside] {
            let (found, expected) = (counts(other), counts(&alone));
            assert!(found.len() == 4 && expected.len() == 4, "{other}{alone}");
            for ((name, count), (_, alone)) in found.into_iter().zip(expected) {
                // A signal to the agent counts as a timer while it is queued.
                assert!(count.abs_diff(alone) <= 8, "{name}: {count} and {alone}");
            }
        }
        for (name, count) in counts(&alone) {
            assert!(count > 0, "{alone}");
            // The sandbox's own limits, and not those of the host.
            let most = if name == "terminals" { 64 } else { 20_000 };
            assert!(count <= most, "{name}: {count}");
        }
    })
    .await;
}

/// Filters are compiled to memory that is limited for the whole host.
#[tokio::test(flavor = "multi_thread")]
async fn no_program_loads_a_filter_into_the_kernel() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use Socket;
            my $instruction = pack('SCCL', 6, 0, 0, 0);
            my $program = pack('Sx6P', 1, $instruction);
            socket(my $udp, AF_INET, SOCK_DGRAM, 0) or die;
            socket(my $unix, AF_UNIX, SOCK_STREAM, 0) or die;
            for my $option (26, 51) {{
                # The kernel ignores the upper half of the arguments.
                for my $high (0, 1 << 32, 0xffffffff << 32) {{
                    for my $socket ($udp, $unix) {{
                        print "option $option ($high)\n" if syscall({setsockopt}, fileno($socket), SOL_SOCKET, $option | $high, $program, 16) == 0;
                        print "level ($high) of $option\n" if syscall({setsockopt}, fileno($socket), SOL_SOCKET | $high, $option, $program, 16) == 0 && $high;
                    }}
                }}
            }}
            print "no option works\n" if !setsockopt($udp, SOL_SOCKET, SO_REUSEADDR, 1) || !setsockopt($udp, SOL_SOCKET, SO_RCVBUF, 65536);
            syscall({prctl}, 38, 1, 0, 0, 0);
            print "prctl\n" if syscall({prctl}, 22, 2, $program, 0, 0) == 0;
            print "prctl, upper half\n" if syscall({prctl}, 22 | 1 << 32, 2, $program, 0, 0) == 0;
            print "seccomp\n" if syscall({seccomp}, 1, 0, $program) == 0;
            "#,
            setsockopt = libc::SYS_setsockopt,
            prctl = libc::SYS_prctl,
            seccomp = libc::SYS_seccomp,
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// The host has 4,096 labels for the flows of all sandboxes.
#[tokio::test(flavor = "multi_thread")]
async fn no_program_takes_a_label_of_a_flow() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use Socket;
            socket(my $udp, AF_INET6, SOCK_DGRAM, 0) or die;
            # Any label (the kernel chooses it), to the loopback address, taken and created, exclusively, for 60 seconds.
            my $request = Socket::inet_pton(AF_INET6, '::1') . pack('NCCSSSL', 0, 0, 1, 1 | 2, 60, 60, 0);
            for my $high (0, 1 << 32, 0xffffffff << 32) {{
                print "label ($high)
" if syscall({setsockopt}, fileno($udp), 41, 32 | $high, $request, 32) == 0;
                print "level ($high)
" if $high && syscall({setsockopt}, fileno($udp), 41 | $high, 32, $request, 32) == 0;
            }}
            print "no option works
" if !setsockopt($udp, 41, 26, 1) || !setsockopt($udp, 41, 67, 1);
            "#,
            setsockopt = libc::SYS_setsockopt,
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// Totals of all connections of the host, which a sandbox could watch.
#[tokio::test(flavor = "multi_thread")]
async fn counters_of_the_hosts_network_are_hidden() {
    in_sandbox(async |rig, id| {
        let read = "for file in protocols sockstat sockstat6 softnet_stat stat/rt_cache; do \
            for dir in /proc/net /proc/self/net /proc/1/net /proc/thread-self/net; do \
            chmod 644 $dir/$file 2>/dev/null; cat $dir/$file 2>/dev/null; done; done; wc -l < /proc/net/dev";
        assert_eq!(rig.output(id, read).await.unwrap().trim(), "3");
    })
    .await;
}

/// Runs a program that takes what the kernel charges to nobody until it is ended.
async fn is_ended(script: &str) {
    with_rig(RigOptions::default(), async |rig| {
        let (hoarder, neighbour) = (rig.create().await.unwrap(), rig.create().await.unwrap());
        let result =
            rig.run(&hoarder, &format!("perl -e '{}'", script.replace('\'', r"'\''"))).await.unwrap();
        assert_eq!((result.stdout.as_str(), result.signal.as_deref()), ("", Some("SIGKILL")), "{result:?}");
        // Its agent and its neighbour go on.
        let programs = "cat /proc/[0-9]*/comm | grep -cx perl; echo alive";
        // Whatever runs while the programs end is killed with them.
        wait_until("the agent is alone", async || {
            rig.output(&hoarder, programs).await.is_ok_and(|text| text == "0\nalive\n")
        })
        .await;
        assert_eq!(rig.output(&neighbour, "echo alive").await.unwrap(), "alive\n");
    })
    .await;
}

/// Connects to itself and accepts nothing. `then` is done with each connection when its buffers are full.
fn unaccepted(then: &str) -> String {
    format!(
        r#"
        use Socket; use Fcntl; our @held; my $piece = 'x' x 65536;
        for my $port (7001 .. 7008) {{
            my $address = pack_sockaddr_in($port, inet_aton('127.0.0.1'));
            # It may have as many descriptors as it can.
            socket(my $listener, AF_INET, SOCK_STREAM, 0) or last;
            bind($listener, $address) && listen($listener, 4096) or die;
            push @held, $listener;
            for (1 .. 4096) {{
                socket(my $socket, AF_INET, SOCK_STREAM, 0) or last;
                fcntl($socket, F_SETFL, O_NONBLOCK); connect($socket, $address);
                for (1 .. 4) {{ syswrite($socket, $piece) or last }}
                {then}
            }}
        }}
        sleep 30; print 'survived';
        "#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hoards_unaccepted_connections_is_ended() {
    is_ended(&unaccepted("push @held, $socket;")).await;
}

/// The charge of a connection that is accepted when it is full cannot be refused.
const FULL_WHEN_ACCEPTED: &str = r#"
    use Socket; use Fcntl; our @held; my $piece = 'x' x 65536;
    my $address = pack_sockaddr_in(7001, inet_aton('127.0.0.1'));
    socket(my $listener, AF_INET, SOCK_STREAM, 0) or die;
    bind($listener, $address) && listen($listener, 4096) or die;
    for (1 .. 60) {
        for (1 .. 400) {
            socket(my $socket, AF_INET, SOCK_STREAM, 0) or last;
            fcntl($socket, F_SETFL, O_NONBLOCK); connect($socket, $address);
            for (1 .. 4) { syswrite($socket, $piece) or last }
            push @held, $socket;
        }
        for (1 .. 400) { accept(my $accepted, $listener) or last; push @held, $accepted }
    }
    sleep 30; print 'survived';
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fills_connections_before_it_accepts_them_is_ended() {
    is_ended(FULL_WHEN_ACCEPTED).await;
}

/// The commands of a paused sandbox cannot be ended, so what they hold is looked at before.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_does_not_keep_what_a_program_hoards() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        let script = unaccepted("push @held, $socket;").replace('\'', r"'\''");
        let command = format!("perl -e '{script}'");
        let is_over = std::cell::Cell::new(false);
        let hoard = async {
            let result = rig.run(&id, &command).await.unwrap();
            assert_eq!(
                (result.stdout.as_str(), result.signal.as_deref()),
                ("", Some("SIGKILL")),
                "{result:?}"
            );
            is_over.set(true);
        };
        let pauses = async {
            for _ in 0..200 {
                if is_over.get() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                rig.driver.pause(&id).await.unwrap();
                let held = unread_bytes(rig, &id);
                assert!(held < 800 << 20, "a paused sandbox holds {held} bytes");
                // Most looks for hoarders find it paused.
                tokio::time::sleep(Duration::from_millis(300)).await;
                rig.driver.resume(&id).await.unwrap();
            }
            panic!("the program hoards on");
        };
        tokio::join!(hoard, pauses);
        wait_until("the sandbox runs", async || rig.output(&id, "echo alive").await.is_ok()).await;
    })
    .await;
}

/// What the connections of a sandbox have received and no program has read.
fn unread_bytes(rig: &Rig, id: &SandboxId) -> u64 {
    let processes = std::fs::read_to_string(cgroup(rig, id, "pids").join("cgroup.procs")).unwrap();
    let first = processes.lines().next().unwrap();
    let table = std::fs::read_to_string(format!("/proc/{first}/net/tcp")).unwrap();
    let received = |line: &str| {
        let (_, received) = line.split_ascii_whitespace().nth(4)?.split_once(':')?;
        u64::from_str_radix(received, 16).ok()
    };
    table.lines().filter_map(received).sum()
}

/// Each process of a chain ends when it has started the next one, so a list of them is old when it has been read.
#[tokio::test(flavor = "multi_thread")]
async fn chains_of_forks_end_with_a_program_that_hoards() {
    let chains = "
        for (1 .. 8) { if (!fork) { my $end = time + 60; while (time < $end) { exit if fork } exit } }
    ";
    is_ended(&format!("{chains}{}", unaccepted("push @held, $socket;"))).await;
}

/// They are in no table of connections, and keep what they have received.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hoards_unaccepted_connections_that_were_reset_is_ended() {
    is_ended(&unaccepted("setsockopt($socket, SOL_SOCKET, SO_LINGER, pack('ll', 1, 0)); close $socket;"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hoards_answers_of_netlink_is_ended() {
    // A request that does not exist is returned.
    let script = r#"
        use Socket; use Fcntl; our @held; my $request = pack('LSSLL', 60016, 4095, 5, 1, 0) . 'x' x 60000;
        for (1 .. 60000) {
            socket(my $socket, 16, SOCK_RAW, 0) or last;
            setsockopt($socket, SOL_SOCKET, SO_RCVBUF, 4 << 20);
            bind($socket, pack('SSLL', 16, 0, 0, 0)) or die; fcntl($socket, F_SETFL, O_NONBLOCK);
            for (1 .. 8) { syswrite($socket, $request) or last }
            push @held, $socket;
        }
        sleep 30; print 'survived';
    "#;
    is_ended(script).await;
}

/// Programs ask for larger buffers and do with the usual ones.
#[tokio::test(flavor = "multi_thread")]
async fn no_program_enlarges_the_buffer_of_a_socket() {
    in_sandbox(async |rig, id| {
        let script = r#"
            use Socket;
            for my $kind (SOCK_STREAM, SOCK_DGRAM) {
                socket(my $socket, AF_INET, $kind, 0) or die;
                my $size = sub { unpack('l', getsockopt($socket, SOL_SOCKET, SO_RCVBUF)) };
                my $before = $size->();
                for my $option (8, 33) {
                    setsockopt($socket, SOL_SOCKET, $option, 4 << 20) or print "option $option fails\n";
                }
                print "the buffer is larger\n" if $size->() != $before;
                setsockopt($socket, SOL_SOCKET, SO_SNDBUF, 100000) or print "SO_SNDBUF fails\n";
                setsockopt($socket, SOL_SOCKET, SO_RCVTIMEO, pack('qq', 1, 0)) or print "SO_RCVTIMEO fails\n";
            }
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
    })
    .await;
}
