//! gVisor as the isolation backend: the lifecycle of a sandbox, and a selection of the attacks of `escape` and `abuse`.
//!
//! Each test documents its differences.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use api::{EndReason, ExecuteRequest, Resources, SandboxConfig, SandboxId, SandboxState};
use e2e::process::processor_ticks;
use e2e::{Rig, RigOptions, command, config, wait_until, with_rig};

async fn in_sandbox(test: impl AsyncFnOnce(&Rig, &SandboxId)) {
    with_rig(RigOptions::gvisor(), async |rig| {
        let id = rig.create().await.unwrap();
        test(rig, &id).await;
    })
    .await;
}

async fn is_paused(rig: &Rig, id: &SandboxId) -> bool {
    rig.engine.sandbox("test", id).status().await.unwrap().state() == SandboxState::Paused
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_runs_pauses_and_terminates() {
    let rig = Rig::new(RigOptions::gvisor()).await.unwrap();
    let id = rig.create().await.unwrap();
    // This is the version of gVisor's kernel.
    assert!(rig.output(&id, "cat /proc/version").await.unwrap().starts_with("Linux version 4.4.0 "));
    assert_eq!(rig.run_with_stdin(&id, "cat; echo err >&2; exit 3", "in").await.unwrap().stdout, "in");
    rig.output(
        &id,
        "echo kept > f; (while :; do echo x >> /workspace/ticks; sleep 0.02; done) >/dev/null 2>&1 &",
    )
    .await
    .unwrap();

    rig.engine.sandbox("test", &id).pause().await.unwrap();
    let processes = rig.host_pids(&id).unwrap();
    assert!(processes.len() >= 2, "expected at least gVisor's kernel and file server: {processes:?}");
    let spent = || processes.iter().map(|pid| processor_ticks(*pid).unwrap()).sum::<u64>();
    let before = spent();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(spent(), before, "a paused sandbox used CPU time");
    rig.engine.sandbox("test", &id).resume().await.unwrap();
    let ticks = async || rig.output(&id, "wc -l < ticks").await.unwrap().trim().parse::<u64>().unwrap();
    let then = ticks().await;
    wait_until("the background process continues", async || ticks().await > then).await;

    // After a restart the agent reconnects to the new daemon.
    let rig = rig.restart().await.unwrap();
    assert_eq!(rig.output(&id, "cat f").await.unwrap(), "kept\n");
    // The same while paused.
    rig.engine.sandbox("test", &id).pause().await.unwrap();
    let rig = rig.restart().await.unwrap();
    assert_eq!(rig.output(&id, "cat f").await.unwrap(), "kept\n");

    let processes = rig.host_pids(&id).unwrap();
    rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
    wait_until("its cgroup is gone", async || rig.host_pids(&id).is_err()).await;
    for pid in processes {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
    }
    rig.clear().await.unwrap();
}

/// All of gVisor counts as the sandbox, in every hierarchy that limits or measures it.
#[tokio::test(flavor = "multi_thread")]
async fn its_processes_are_in_all_cgroups_of_the_sandbox() {
    in_sandbox(async |rig, id| {
        for pid in rig.host_pids(id).unwrap() {
            let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
            for line in cgroups.lines() {
                let controllers = line.split(':').nth(1).unwrap();
                let limits = ["freezer", "memory", "cpu", "cpuacct", "cpuset", "pids"];
                if controllers.split(',').any(|controller| limits.contains(&controller)) {
                    assert!(line.ends_with(id.as_str()), "process {pid}: {line}");
                }
            }
        }
        let used = rig.driver.resource_use(id).await.unwrap().unwrap();
        assert!(used.cpu_us > 10_000, "{used:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inside_shows_the_size_and_name_of_the_sandbox() {
    with_rig(RigOptions::gvisor(), async |rig| {
        for memory_mb in [512, 1024] {
            let resources = Resources { cpu: 1, memory_mb, disk_mb: 512 };
            let config = SandboxConfig { resources, ..config() };
            let created = rig.engine.create("test", config, rig.template.clone(), None).await.unwrap();
            let id = created.record.id.clone();
            let total = rig.output(&id, "awk '/^MemTotal/ { print $2 }' /proc/meminfo").await.unwrap();
            assert_eq!(total.trim(), (memory_mb * 1024).to_string());
            let names = rig.output(&id, "hostname; cat /proc/sys/kernel/hostname").await.unwrap();
            let expected = id.host_name();
            assert!(names.lines().all(|name| name == expected), "{names} instead of {expected}");
        }
    })
    .await;
}

/// Programs find a file system without extended attributes, also where they ask for those of a symbolic link.
#[tokio::test(flavor = "multi_thread")]
async fn the_lack_of_extended_attributes_is_no_error_of_programs() {
    in_sandbox(async |rig, id| {
        let files = "touch file; ln -s file link; ls -la . / /etc && cp -a link copy && mv copy moved && rm moved";
        let used = rig.run(id, files).await.unwrap();
        assert_eq!((used.exit_code, used.stderr.as_str()), (Some(0), ""));
        let script = format!(
            r#"
            use POSIX qw(:errno_h);
            for my $path ('file', 'link', '/etc') {{
                my ($file, $name, $value) = ($path, 'security.selinux', "\0" x 1024);
                my $got = syscall({get}, $file, $name, $value, 255);
                print "lgetxattr of $path gave $got, $!\n" unless $got == -1 && ($! == EOPNOTSUPP || $! == ENODATA);
                $got = syscall({list}, $file, $value, 1024);
                print "llistxattr of $path gave $got, $!\n" unless $got == 0 || $got == -1 && $! == EOPNOTSUPP;
            }}
            print "asked\n";
            "#,
            get = libc::SYS_lgetxattr,
            list = libc::SYS_llistxattr,
        );
        assert_eq!(rig.perl(id, &script).await.unwrap(), "asked\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_calls_are_refused() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use POSIX qw(:errno_h);
            sub refused {{
                my ($name, $number, @args) = @_;
                my $got = syscall($number, @args);
                print "$name gave $got, errno ", $! + 0, "\n" unless $got == -1 && ($! == EPERM || $! == EACCES || $! == ENOSYS);
            }}
            my ($none, $mnt, $kind, $empty) = ('none', '/mnt', 'tmpfs', '');
            refused('mount', {mount}, $none, $mnt, $kind, 0, 0);
            refused('umount', {umount}, my $dev = '/dev', 2);
            refused("unshare $_", {unshare}, $_) for 0x10000000, 0x20000, 0x40000000, 0x20000000;
            refused("clone $_", {clone}, $_ | 17, 0, 0, 0, 0) for 0x10000000, 0x20000, 0x40000000, 0x20000000;
            refused("clone3", {clone3}, my $args = pack('Q8', 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64);
            refused('bpf', {bpf}, 0, my $map = pack('L32', 1, 4, 4, 1), 128);
            refused('io_uring', {uring}, 4, my $ring = "\0" x 120);
            refused('ptrace', {ptrace}, 16, 1, 0, 0);
            refused('prlimit', {prlimit}, 1, 7, my $limit = pack('QQ', 0, 0), 0);
            for my $family (3 .. 9, 11 .. 15, 18 .. 46, 40 | (1 << 32)) {{
                my $got = syscall({socket}, $family, 1, 0);
                print "family $family gave $got, errno ", $! + 0, "\n" unless $got == -1 && $! == EAFNOSUPPORT;
            }}
            refused('reboot', {reboot}, 0xfee1dead, 672274793, 0x1234567, 0);
            refused('syslog', {syslog}, 3, my $log = ' ' x 4096, 4096);
            my $node = '/workspace/node';
            refused('mknod', {mknod}, $node, 060666, 7 << 8);
            "#,
            mount = libc::SYS_mount,
            umount = libc::SYS_umount2,
            unshare = libc::SYS_unshare,
            clone = libc::SYS_clone,
            clone3 = libc::SYS_clone3,
            bpf = libc::SYS_bpf,
            uring = libc::SYS_io_uring_setup,
            ptrace = libc::SYS_ptrace,
            prlimit = libc::SYS_prlimit64,
            socket = libc::SYS_socket,
            reboot = libc::SYS_reboot,
            syslog = libc::SYS_syslog,
            mknod = libc::SYS_mknod,
        );
        assert_eq!(rig.perl(id, &script).await.unwrap(), "");
        let capabilities = rig.output(id, "grep Cap /proc/self/status | cut -f2 | uniq").await.unwrap();
        assert_eq!(capabilities, "0000000000000000\n00000000a80425fb\n");
    })
    .await;
}

/// Other processes can connect to the daemon as the agent does, but without its token nothing follows.
#[tokio::test(flavor = "multi_thread")]
async fn other_processes_cannot_impersonate_the_agent() {
    let rig = Rig::new(RigOptions::gvisor()).await.unwrap();
    let id = rig.create().await.unwrap();
    let script = r#"
        for my $path ('/dev/sandbox-agent', '/proc/1/exe', '/proc/1/mem') {
            print "$path opens for writing\n" if sysopen(my $program, $path, 1);
        }
        print "its memory can be read\n" if sysopen(my $memory, '/proc/1/mem', 0) and sysseek($memory, 0x400000, 0) and sysread($memory, my $bytes, 1);
    "#;
    let run = rig.run.join("sandboxes").join(id.as_str());
    let host_state = || {
        let listed =
            |dir| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let mut paths = [listed(run.clone()), vec![PathBuf::from("/dev/null")]].concat();
        paths.sort();
        paths
            .into_iter()
            .map(|path| {
                let metadata = std::fs::metadata(&path).unwrap();
                (path, metadata.mode(), metadata.uid(), metadata.gid(), metadata.len(), metadata.ctime())
            })
            .collect::<Vec<_>>()
    };
    let before = host_state();
    assert_eq!(rig.perl(&id, script).await.unwrap(), "");
    // Other processes can open the agent's descriptors, but must not be able to write to files of the host.
    let fill = r#"
        for my $number (0 .. 30) {
            sysopen(my $file, "/proc/1/fd/$number", 1 | 04000) or next;
            syswrite($file, 'x' x 100_000); truncate($file, 100_000); chmod 0777, $file; chown 5, 5, $file;
        }
    "#;
    rig.run_with_stdin(&id, "exec perl -", fill).await.unwrap();
    assert_eq!(host_state(), before);
    // Other processes connect continuously, silent or with wrong tokens, while the daemon restarts and its agent reconnects.
    let connect = r#"
        use Socket;
        $SIG{PIPE} = 'IGNORE'; my @open;
        while (1) {
            for my $token ('', 'x' x 32, 'x' x 31, "\0" x 4096) {
                socket(my $caller, PF_INET, SOCK_STREAM, 0) or last;
                connect($caller, pack_sockaddr_in(7083, inet_aton('169.254.83.1'))) or next;
                syswrite $caller, $token; syswrite STDOUT, '.';
                push @open, $caller; shift @open if @open > 8;
            }
            select(undef, undef, undef, 0.005);
        }
    "#;
    rig.run_with_stdin(&id, "cat > connect; perl connect > connected 2>/dev/null &", connect).await.unwrap();
    let rig = rig.restart().await.unwrap();
    assert_eq!(rig.recovered.running, 1, "{:?}", rig.recovered);
    assert_eq!(
        rig.output(&id, "cat /proc/1/cmdline | tr '\\0' ' '").await.unwrap(),
        "/dev/sandbox-agent --connect 169.254.83.1:7083 "
    );
    rig.clear().await.unwrap();
}

/// The link of the agent leads to the daemon's socket and to nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn the_link_of_the_agent_leads_nowhere_else() {
    in_sandbox(async |rig, id| {
        // A listener of the host on all addresses, as daemons have.
        let host = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = host.local_addr().unwrap().port();
        let script = format!(
            r#"
            use Socket; use IO::Select;
            for my $to ('169.254.83.1', '169.254.83.3', '169.254.169.254', '127.0.0.2') {{
                for my $port ({port}, 22, 53, 7083) {{
                    next if $to eq '169.254.83.1' && $port == 7083;
                    socket(my $socket, PF_INET, SOCK_STREAM, 0); $socket->blocking(0);
                    my $connected = connect($socket, pack_sockaddr_in($port, inet_aton($to)));
                    $connected ||= IO::Select->new($socket)->can_write(0.3) && getsockopt($socket, SOL_SOCKET, SO_ERROR) eq pack('i', 0);
                    print "$to:$port is reached
" if $connected;
                }}
            }}
            "#
        );
        assert_eq!(rig.perl(id, &script).await.unwrap(), "");
        host.set_nonblocking(true).unwrap();
        assert!(host.accept().is_err());
    })
    .await;
}

/// gVisor does not protect process 1 from signals as Linux does; the rules of system calls do.
#[tokio::test(flavor = "multi_thread")]
async fn signals_do_not_reach_the_agent() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use POSIX qw(:errno_h);
            my $info = pack('i3x4i2', 9, 0, -1, $$, 0) . "\0" x 112;
            my %calls = (
                kill => [{kill}, 1, 9], all => [{kill}, -1, 9], low => [{kill}, 0x7fffffff00000001, 9],
                tkill => [{tkill}, 1, 9], tgkill => [{tgkill}, 1, 1, 9], thread => [{tgkill}, -1, 1, 9],
                queue => [{queue}, 1, 9, $info], queue_thread => [{queue_thread}, 1, 1, 9, $info],
                pidfd => [{pidfd}, 1, 0],
            );
            for my $name (sort keys %calls) {{
                my ($number, @arguments) = @{{$calls{{$name}}}};
                my $got = syscall($number, @arguments);
                print "$name gave $got, errno ", $! + 0, "\n" unless $got == -1 && ($! == EPERM || $! == ENOSYS);
            }}
            "#,
            kill = libc::SYS_kill,
            tkill = libc::SYS_tkill,
            tgkill = libc::SYS_tgkill,
            queue = libc::SYS_rt_sigqueueinfo,
            queue_thread = libc::SYS_rt_tgsigqueueinfo,
            pidfd = libc::SYS_pidfd_open,
        );
        assert_eq!(rig.perl(id, &script).await.unwrap(), "");
        // Others are still reached.
        let result = rig.run(id, "sleep 1000 & kill -9 $!; wait $!").await.unwrap();
        assert_eq!(result.exit_code, Some(137), "{result:?}");
        assert!(!is_paused(rig, id).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_is_not_reachable() {
    in_sandbox(async |rig, id| {
        let other = rig.create().await.unwrap();
        let secret = rig.data.join("only-the-host");
        std::fs::write(&secret, "a secret of the host").unwrap();
        let secret = secret.canonicalize().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let script = format!(
            "cat {0} /proc/1/root{0} /proc/self/root/../..{0}; ls -d /proc/[0-9]* | wc -l; cat /proc/net/route | wc -l; \
             (exec 3<>/dev/tcp/127.0.0.1/{1}) && echo connected; true",
            secret.display(),
            listener.local_addr().unwrap().port()
        );
        let result = rig.run(id, &script.replace("ls -d /proc/[0-9]*", "echo /proc/[0-9]* | tr ' ' '\\n'")).await.unwrap();
        let lines: Vec<&str> = result.stdout.lines().collect();
        assert!(lines.len() == 2 && lines[0].parse::<u32>().unwrap() < 8 && lines[1].parse::<u32>().unwrap() <= 2, "{result:?}");
        // The file server has the sandbox's own ids. gVisor's kernel runs as nobody in its own namespace.
        rig.output(id, "echo x > /workspace/f; chown 33:44 /workspace/f").await.unwrap();
        let mut ranges = Vec::new();
        for sandbox in [id, &other] {
            let mut ids: Vec<u32> = rig.host_pids(sandbox).unwrap().into_iter().map(user_of).collect();
            assert!(ids.iter().all(|id| *id == 65_534 || *id >= rig.uid_base), "{ids:?}");
            ids.retain(|id| *id != 65_534);
            assert!(!ids.is_empty());
            ranges.push(ids[0] / 65_536);
        }
        assert_ne!(ranges[0], ranges[1], "two sandboxes have the same user ids");
    })
    .await;
}

fn user_of(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The host's kernel kills gVisor's, and with it all processes of the sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_exceeds_the_memory_names_the_limit() {
    with_rig(RigOptions::gvisor(), async |rig| {
        let resources = Resources { cpu: 1, memory_mb: 512, disk_mb: 64 };
        let config = SandboxConfig { resources, ..config() };
        let created = rig.engine.create("test", config, rig.template.clone(), None).await.unwrap();
        let id = created.record.id.clone();
        let result = rig.run(&id, "exec perl -e '$x = q(x) x (1 << 30); sleep 100'").await.unwrap();
        assert_eq!(
            (result.signal.as_deref(), result.reason),
            (Some("SIGKILL"), Some(EndReason::Oom)),
            "{result:?}"
        );
        assert!(result.message.as_deref().unwrap().contains("its limit of 512 MB"), "{result:?}");
        wait_until("the loss is recorded", async || is_paused(rig, &id).await).await;
        let lost = rig.lifecycle_events(&id).await.unwrap().pop().unwrap();
        let message = lost.data["message"].as_str().unwrap();
        assert!(lost.kind == "sandbox.error" && message.contains("resources.memoryMb is 512"), "{lost:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exhaustion_is_limited_to_the_sandbox() {
    with_rig(RigOptions::gvisor(), async |rig| {
        let resources = Resources { cpu: 1, memory_mb: 512, disk_mb: 64 };
        let config = SandboxConfig { resources, ..config() };
        let id =
            rig.engine.create("test", config, rig.template.clone(), None).await.unwrap().record.id.clone();
        let neighbour = rig.create().await.unwrap();
        let run = async |text: &str, timeout_ms| {
            let request = ExecuteRequest { timeout_ms, ..command(text) };
            rig.engine.sandbox("test", &id).execute(request).await.unwrap().collect(1 << 20).await
        };
        // Disk.
        let result = run("head -c 200M /dev/zero > fill", 30_000).await.unwrap();
        assert!(result.stderr.contains("No space left on device"), "{result:?}");
        rig.output(&id, "rm fill; echo kept > f; sync").await.unwrap();
        // Processes that try to escape the time limit.
        let result = run("setsid sleep 1000 & (setsid sh -c 'sleep 1000' &) ; sleep 60", 500).await.unwrap();
        assert_eq!(result.signal.as_deref(), Some("SIGKILL"), "{result:?}");
        // gVisor has no cgroup namespaces to mark commands. A process that also clears its environment escapes the tree kill, and
        // continues within the sandbox's limits.
        let names = rig.output(&id, "cat /proc/[0-9]*/comm").await.unwrap();
        assert!(!names.contains("sleep"), "a process escaped: {names}");
        // Output.
        let result = run("head -c 64M /dev/zero | tr '\\0' x", 60_000).await.unwrap();
        assert!(result.stdout_truncated && result.exit_code == Some(0));
        // Memory and processes: gVisor's kernel allocates them in the sandbox's cgroup and may be killed itself. The sandbox is
        // then paused without processes.
        for hog in [
            "exec perl -e '$x = q(x) x (1 << 30); sleep 100'",
            "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 60",
        ] {
            match run(hog, 3000).await {
                // The kill orphans stopped process groups, which get a SIGHUP. gVisor may deliver it first.
                Ok(result) => {
                    assert!(matches!(result.signal.as_deref(), Some("SIGKILL" | "SIGHUP")), "{result:?}");
                }
                // With one CPU the bomb can keep the agent from answering.
                Err(error) => assert!(error.to_string().contains("the sandbox's agent failed"), "{error}"),
            }
            wait_until("it runs commands again", async || {
                rig.run(&id, "cat f").await.is_ok_and(|result| result.stdout == "kept\n")
            })
            .await;
        }
        assert_eq!(rig.output(&neighbour, "echo unharmed").await.unwrap(), "unharmed\n");
    })
    .await;
}
