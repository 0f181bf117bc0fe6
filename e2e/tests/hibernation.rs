//! Hibernation under gVisor: processes leave the memory and continue later, whatever happens in between.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{Isolation, SandboxId, SandboxState};
use driver::Presence;
use e2e::{Rig, RigOptions, wait_until, with_rig};
use engine::{
    DetachedRequest, EngineError, ExecutionState, HibernationError, OutputEvent, Processes, Status,
    TerminalSize,
};
use rules::{OutputPosition, SnapshotRequest};

async fn status(rig: &Rig, id: &SandboxId) -> Status {
    rig.engine.sandbox("test", id).status().await.unwrap()
}

async fn is_hibernated(rig: &Rig, id: &SandboxId) -> bool {
    let status = status(rig, id).await;
    status.state() == SandboxState::Paused && status.record.lifecycle.hibernated_at().is_some()
}

/// Hibernates a sandbox and checks that none of its processes is left.
async fn hibernate(rig: &Rig, id: &SandboxId) {
    let processes = rig.host_pids(id).unwrap();
    rig.engine.sandbox("test", id).pause_with(Processes::Stored).await.unwrap();
    assert!(is_hibernated(rig, id).await);
    for pid in processes {
        assert!(!PathBuf::from(format!("/proc/{pid}")).exists(), "process {pid} is left");
    }
    assert!(rig.host_pids(id).is_err(), "the cgroup is left");
}

fn memory(rig: &Rig, id: &SandboxId) -> PathBuf {
    rig.data.join("sandboxes").join(id.as_str()).join("memory")
}

/// A process that answers `ask` with its pid, a number that it counts, and a secret that is only in its memory.
const COUNTER: &str = r#"
    use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
    my ($count, $secret) = (0, join '', map { int rand 10 } 1 .. 30);
    my $last = clock_gettime(CLOCK_MONOTONIC);
    while (1) {
        my $now = clock_gettime(CLOCK_MONOTONIC);
        if ($now < $last) { open(my $file, '>', 'backwards'); print $file "$last $now\n"; close $file }
        $last = $now; $count++;
        open(my $file, '>', 'answer.new'); print $file "$$ $secret $count\n"; close $file; rename 'answer.new', 'answer';
        select(undef, undef, undef, 0.02);
    }
"#;

async fn start_counter(rig: &Rig, id: &SandboxId) {
    rig.run_with_stdin(id, "cat > counter; setsid perl counter </dev/null >/dev/null 2>&1 &", COUNTER)
        .await
        .unwrap();
    wait_until("the counter answers", async || rig.run(id, "cat answer").await.unwrap().exit_code == Some(0))
        .await;
}

/// The pid and the secret, which never change, and the count.
async fn ask(rig: &Rig, id: &SandboxId) -> (String, u64) {
    let answer = rig.output(id, "cat answer").await.unwrap();
    let (same, count) = answer.trim().rsplit_once(' ').unwrap();
    (same.to_owned(), count.parse().unwrap())
}

async fn check_counter(rig: &Rig, id: &SandboxId, before: &(String, u64)) {
    wait_until("the counter goes on", async || ask(rig, id).await.1 > before.1 + 2).await;
    assert_eq!(ask(rig, id).await.0, before.0, "it is another process");
    assert_eq!(
        rig.run(id, "cat backwards").await.unwrap().exit_code,
        Some(1),
        "the monotonic clock went backwards"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_continue_where_they_were() {
    let rig = Rig::new(RigOptions::gvisor()).await.unwrap();
    let id = rig.create().await.unwrap();
    start_counter(&rig, &id).await;
    rig.output(&id, "echo written > unsynced; mkdir -p /dev/shm; echo memory > /dev/shm/file").await.unwrap();
    let before = ask(&rig, &id).await;
    hibernate(&rig, &id).await;
    // Again: it is hibernated already.
    rig.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();

    // Another daemon finds it, also after a reboot, which empties the directory of running sandboxes.
    let rig = rig.restart().await.unwrap();
    assert!(is_hibernated(&rig, &id).await);
    let halted = rig.halt().await;
    std::fs::remove_dir_all(&halted.layout.run).unwrap();
    let rig = halted.start().await.unwrap();
    assert!(is_hibernated(&rig, &id).await);

    // A command wakes it.
    assert_eq!(rig.output(&id, "cat unsynced /dev/shm/file").await.unwrap(), "written\nmemory\n");
    assert_eq!(status(&rig, &id).await.state(), SandboxState::Running);
    assert!(status(&rig, &id).await.record.lifecycle.hibernated_at().is_none());
    check_counter(&rig, &id, &before).await;
    let inside: u64 = rig.output(&id, "date +%s").await.unwrap().trim().parse().unwrap();
    let outside = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(inside.abs_diff(outside) <= 2, "the clock inside shows {inside} instead of {outside}");
    assert!(!memory(&rig, &id).exists(), "what was stored is left");

    // Twice, and from a pause with frozen processes.
    let before = ask(&rig, &id).await;
    rig.engine.sandbox("test", &id).pause().await.unwrap();
    hibernate(&rig, &id).await;
    rig.engine.sandbox("test", &id).resume().await.unwrap();
    check_counter(&rig, &id, &before).await;
    let kinds: Vec<String> =
        rig.lifecycle_events(&id).await.unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds[kinds.len() - 6..],
        [
            "sandbox.paused",
            "sandbox.hibernated",
            "sandbox.resumed",
            "sandbox.paused",
            "sandbox.hibernated",
            "sandbox.resumed"
        ]
    );
    // A hibernated sandbox leaves nothing when it is terminated.
    hibernate(&rig, &id).await;
    rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
    wait_until("its directory is gone", async || !memory(&rig, &id).parent().unwrap().exists()).await;
    rig.clear().await.unwrap();
}

/// What a process can hold open must not keep the sandbox from being stored.
#[tokio::test(flavor = "multi_thread")]
async fn open_descriptors_of_all_kinds_are_stored() {
    with_rig(RigOptions::gvisor(), async |rig| {
        let id = rig.create().await.unwrap();
        let holder = r#"
            use Socket; use Fcntl; use IO::Handle; use POSIX;
            my @open;
            sub keep { push @open, @_ }
            socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0); keep($a, $b);
            socket(my $listener, AF_UNIX, SOCK_STREAM, 0); unlink '/tmp/l'; bind($listener, pack_sockaddr_un('/tmp/l')); listen($listener, 5);
            socket(my $peer, AF_UNIX, SOCK_STREAM, 0); connect($peer, pack_sockaddr_un('/tmp/l')); keep($listener, $peer);
            socket(my $tcp, AF_INET, SOCK_STREAM, 0); bind($tcp, pack_sockaddr_in(0, INADDR_LOOPBACK)); listen($tcp, 5);
            socket(my $client, AF_INET, SOCK_STREAM, 0); connect($client, getsockname $tcp); keep($tcp, $client);
            socket(my $udp, AF_INET, SOCK_DGRAM, 0); bind($udp, pack_sockaddr_in(0, INADDR_ANY)); keep($udp);
            # The daemon's end of the control link, as a hostile process would hold it.
            for (1 .. 5) { socket(my $daemon, AF_INET, SOCK_STREAM, 0); fcntl($daemon, F_SETFL, O_NONBLOCK); connect($daemon, pack_sockaddr_in(7083, inet_aton('169.254.83.1'))); keep($daemon) }
            pipe(my $reader, my $writer); syswrite $writer, 'in the pipe'; keep($reader, $writer);
            mkfifo('/tmp/fifo', 0600); sysopen(my $fifo, '/tmp/fifo', O_RDWR); syswrite $fifo, 'fifo'; keep($fifo);
            open(my $in_memory, '+>', '/dev/shm/deleted'); syswrite $in_memory, 'deleted data'; unlink '/dev/shm/deleted'; keep($in_memory);
            open(my $directory, '<', '/workspace'); keep($directory);
            open(my $appended, '>>', '/workspace/log'); $appended->autoflush(1); print $appended "before\n"; keep($appended);
            open(my $proc, '<', '/proc/self/status'); keep($proc);
            open(my $null, '+<', '/dev/null'); open(my $random, '<', '/dev/urandom'); keep($null, $random);
            open(my $locked, '>', '/workspace/locked'); flock($locked, 2); keep($locked);
            my $epoll = syscall(291, 0); my $timer = syscall(283, 1, 0); my $event = syscall(290, 7, 0); my $inotify = syscall(294, 0);
            my ($path, $name) = ("/workspace\0", "name\0");
            syscall(254, $inotify, $path, 0x100); syscall(283, 0, 0);
            my $memory = syscall(319, $name, 0);
            open(my $ready, '>', '/workspace/ready'); close $ready;
            $SIG{USR1} = sub {
                sysread $reader, my $piped, 100; sysread $fifo, my $fifoed, 100; seek $in_memory, 0, 0; sysread $in_memory, my $kept, 100;
                my $accepted = accept(my $connection, $listener) ? 'accepted' : "accept: $!";
                print $appended "$piped, $fifoed, $kept, $accepted\n";
                open(my $done, '>', '/workspace/done'); close $done;
            };
            while (1) { select(undef, undef, undef, 1) }
        "#;
        rig.run_with_stdin(&id, "cat > holder; setsid perl holder </dev/null >err 2>&1 & echo $! > pid", holder).await.unwrap();
        wait_until("the holder is ready", async || rig.run(&id, "test -e ready").await.unwrap().exit_code == Some(0)).await;
        hibernate(rig, &id).await;
        rig.output(&id, "kill -USR1 $(cat pid)").await.unwrap();
        wait_until("the holder reports", async || rig.run(&id, "test -e done").await.unwrap().exit_code == Some(0)).await;
        assert_eq!(
            rig.output(&id, "cat log err").await.unwrap(),
            "before\nin the pipe, fifo, deleted data, accepted\n"
        );
    })
    .await;
}

/// Its client keeps following, and misses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn detached_executions_and_terminals_continue() {
    with_rig(RigOptions::gvisor(), async |rig| {
        let id = rig.create().await.unwrap();
        let sandbox = rig.engine.sandbox("test", &id);
        for terminal in [None, TerminalSize::new(80, 24)] {
            let command = "for n in $(seq 30); do echo line $n; sleep 0.1; done; exit 7".to_owned();
            let request =
                DetachedRequest { command, auto_resume: true, terminal, ..DetachedRequest::default() };
            let execution = sandbox.start_detached(request).await.unwrap().id;
            let mut reader = sandbox.follow(&execution, OutputPosition::default()).await.unwrap();
            let mut text = String::new();
            while !text.contains("line 5") {
                match tokio::time::timeout(Duration::from_secs(30), reader.next()).await {
                    Ok(Ok(OutputEvent::Output { bytes, .. })) => {
                        text.push_str(&String::from_utf8_lossy(&bytes));
                    }
                    other => panic!("{other:?} after {text:?}"),
                }
            }
            hibernate(rig, &id).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            sandbox.resume().await.unwrap();
            let status = loop {
                match tokio::time::timeout(Duration::from_secs(30), reader.next()).await.unwrap().unwrap() {
                    OutputEvent::Output { bytes, .. } => text.push_str(&String::from_utf8_lossy(&bytes)),
                    OutputEvent::Dropped { position } => panic!("dropped up to {position}"),
                    OutputEvent::Ended(status) => break status,
                }
            };
            assert_eq!((status.state, status.exit_code), (ExecutionState::Exited, Some(7)));
            let expected: String = (1..=30).map(|n| format!("line {n}\n")).collect();
            assert_eq!(text.replace('\r', ""), expected);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_wake_keeps_what_is_stored() {
    with_rig(RigOptions::gvisor(), async |rig| {
        let id = rig.create().await.unwrap();
        start_counter(rig, &id).await;
        let before = ask(rig, &id).await;
        hibernate(rig, &id).await;
        let sandbox = rig.engine.sandbox("test", &id);
        let files = ["checkpoint.img", "pages.img", "pages_meta.img"].map(|name| memory(rig, &id).join(name));
        for file in &files {
            let whole = std::fs::read(file).unwrap();
            std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
            let error = sandbox.resume().await.unwrap_err();
            assert!(
                matches!(error, EngineError::Hibernation(HibernationError::WakeFailed(_))),
                "{}: {error:?}",
                file.display()
            );
            assert!(rig.run(&id, "true").await.is_err());
            assert!(is_hibernated(rig, &id).await);
            std::fs::write(file, whole).unwrap();
        }
        // Of another release.
        let release = memory(rig, &id).join("release");
        let own = std::fs::read_to_string(&release).unwrap();
        std::fs::write(&release, "gVisor release 20200101").unwrap();
        let error = sandbox.resume().await.unwrap_err();
        assert!(matches!(error, EngineError::Hibernation(HibernationError::OtherRelease(_))), "{error:?}");
        assert!(error.to_string().contains("gVisor release 20200101"), "{error}");
        std::fs::write(&release, own).unwrap();
        // The same bytes as at first.
        sandbox.resume().await.unwrap();
        check_counter(rig, &id, &before).await;

        // Without the processes, on request only.
        hibernate(rig, &id).await;
        std::fs::write(&files[0], "damaged").unwrap();
        sandbox.resume().await.unwrap_err();
        sandbox.resume_with(Processes::Ended).await.unwrap();
        assert_eq!(rig.output(&id, "pgrep -c perl; cat answer | wc -l").await.unwrap(), "0\n1\n");
        assert!(!memory(rig, &id).exists());
    })
    .await;
}

/// A create from a damaged snapshot fails and leaves nothing. The next one uses the same bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_snapshot_is_not_used() {
    with_rig(RigOptions::gvisor(), async |rig| {
        let id = rig.create().await.unwrap();
        start_counter(rig, &id).await;
        let before = ask(rig, &id).await;
        let sandbox = rig.engine.sandbox("test", &id);
        let request = SnapshotRequest { memory: true, ..SnapshotRequest::default() };
        let snapshot = sandbox.take_snapshot(request, None).await.unwrap();
        let create = async || {
            let (template, _) = rig.engine.snapshot_template("test", &snapshot.id).await.unwrap();
            let config = status(rig, &id).await.record.config.clone();
            rig.engine.create("test", config, template, None).await
        };
        let stored = rig.data.join("snapshots").join(snapshot.id.as_str()).join("memory");
        for file in ["checkpoint.img", "pages.img", "pages_meta.img"].map(|name| stored.join(name)) {
            let whole = std::fs::read(&file).unwrap();
            std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
            let error = create().await.unwrap_err();
            assert!(
                matches!(error, EngineError::Hibernation(HibernationError::WakeFailed(_))),
                "{}: {error:?}",
                file.display()
            );
            // Those that it does not depend on go on, and a rollback that fails can be repeated.
            sandbox.rollback(&snapshot.id).await.unwrap_err();
            std::fs::write(&file, whole).unwrap();
            sandbox.resume().await.unwrap();
            check_counter(rig, &id, &before).await;
            assert_eq!(rig.driver.list().await.unwrap(), std::slice::from_ref(&id));
        }
        let copy = create().await.unwrap().record.id.clone();
        check_counter(rig, &copy, &before).await;
        rig.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_sandbox_is_hibernated_after_a_while() {
    with_rig(RigOptions { hibernate_after_ms: 300, ..RigOptions::gvisor() }, async |rig| {
        let id = rig.create().await.unwrap();
        start_counter(rig, &id).await;
        let before = ask(rig, &id).await;
        rig.engine.sandbox("test", &id).pause().await.unwrap();
        assert!(!is_hibernated(rig, &id).await);
        wait_until("it is hibernated", async || is_hibernated(rig, &id).await).await;
        check_counter(rig, &id, &before).await;
    })
    .await;
}

/// gVisor would end a sandbox with such a file.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_file_in_use_keeps_the_sandbox_in_memory() {
    with_rig(RigOptions { hibernate_after_ms: 100, ..RigOptions::gvisor() }, async |rig| {
        for hold in [
            "exec 3> gone; rm gone; exec sleep 1000",
            "mkdir gone; cd gone; rmdir ../gone; exec sleep 1000",
            "cp /bin/sleep gone; ./gone 1000 & sleep 0.2; rm gone; wait",
            "perl -e 'open(F, \"+>\", \"/tmp/gone\"); unlink \"/tmp/gone\"; sleep 1000'",
        ] {
            let id = rig.create().await.unwrap();
            rig.run_with_stdin(&id, "cat > hold; setsid bash hold </dev/null >/dev/null 2>&1 &", hold)
                .await
                .unwrap();
            let is_held = "pgrep 'sleep|gone|perl' > /dev/null && test ! -e gone -a ! -e /tmp/gone";
            wait_until("it is held", async || rig.run(&id, is_held).await.unwrap().exit_code == Some(0))
                .await;
            let sandbox = rig.engine.sandbox("test", &id);
            let error = sandbox.pause_with(Processes::Stored).await.unwrap_err();
            assert!(error.to_string().contains("uses the deleted file '"), "{hold}: {error}");
            assert!(error.to_string().contains("gone'"), "{hold}: {error}");
            assert_eq!(status(rig, &id).await.state(), SandboxState::Running);
            sandbox.pause().await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(!is_hibernated(rig, &id).await);
            assert_eq!(rig.driver.inspect(&id).await.unwrap(), Presence::Paused);
            assert_eq!(rig.output(&id, "pgrep -c 'sleep|gone|perl'").await.unwrap().trim(), "1", "{hold}");
            // Without the file it can be stored.
            rig.output(&id, "pkill 'sleep|gone|perl' || true").await.unwrap();
            wait_until("it ends", async || {
                rig.run(&id, "pgrep 'sleep|gone|perl'").await.unwrap().exit_code == Some(1)
            })
            .await;
            hibernate(rig, &id).await;
            sandbox.terminate("test").await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_not_hibernated() {
    let options =
        RigOptions { isolation: Isolation::Container, hibernate_after_ms: 100, ..RigOptions::gvisor() };
    with_rig(options, async |rig| {
        let id = rig.create().await.unwrap();
        let sandbox = rig.engine.sandbox("test", &id);
        let error = sandbox.pause_with(Processes::Stored).await.unwrap_err();
        assert!(matches!(error, EngineError::Hibernation(HibernationError::NotStorable { .. })), "{error:?}");
        assert_eq!(status(rig, &id).await.state(), SandboxState::Running);
        sandbox.pause().await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!is_hibernated(rig, &id).await);
        assert_eq!(rig.output(&id, "echo fine").await.unwrap(), "fine\n");
    })
    .await;
}

/// Swap space in a file. It is taken from the host again when dropped.
struct Swap(PathBuf);

impl Swap {
    fn on(file: PathBuf, megabytes: u64) -> Self {
        let swap = Self(file);
        // Swap space must have no holes.
        std::fs::write(&swap.0, vec![0; (megabytes as usize) << 20]).unwrap();
        std::fs::set_permissions(&swap.0, std::fs::Permissions::from_mode(0o600)).unwrap();
        swap.run(Command::new("mkswap"));
        swap.run(Command::new("swapon"));
        swap
    }

    fn run(&self, mut program: Command) {
        let output = program.arg(&self.0).output().unwrap();
        assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        self.run(Command::new("swapoff"));
        let _ = std::fs::remove_file(&self.0);
    }
}

fn memory_mb(rig: &Rig, id: &SandboxId) -> u64 {
    let root = Path::new("/sys/fs/cgroup");
    let files = [("memory", "memory.usage_in_bytes"), ("", "memory.current")]
        .map(|(controller, file)| root.join(controller).join(&rig.name).join(id.as_str()).join(file));
    let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
    text.trim().parse::<u64>().unwrap() >> 20
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_paused_containers_moves_to_swap() {
    let options =
        RigOptions { isolation: Isolation::Container, hibernate_after_ms: 100, ..RigOptions::gvisor() };
    with_rig(options, async |rig| {
        let _swap = Swap::on(rig.data.join("swap"), 256);
        let id = rig.create().await.unwrap();
        let holder = r#"
            open(R, '<', '/dev/urandom'); read(R, my $x, 96 << 20);
            my $n = 0;
            sub report { open(F, '>', 'new'); print F $n++, ' ', unpack('%32C*', $x); close F; rename 'new', 'sum' }
            $SIG{USR1} = \&report; report();
            sleep 9999 while 1;
        "#;
        rig.run_with_stdin(&id, "cat > holder; setsid perl holder </dev/null >/dev/null 2>&1 &", holder)
            .await
            .unwrap();
        wait_until("it holds memory", async || rig.run(&id, "cat sum").await.unwrap().exit_code == Some(0)).await;
        let before = rig.output(&id, "cat sum").await.unwrap();
        assert!(memory_mb(rig, &id) >= 96);
        rig.engine.sandbox("test", &id).pause().await.unwrap();
        wait_until("the memory is free", async || memory_mb(rig, &id) < 16).await;
        assert_eq!(rig.driver.inspect(&id).await.unwrap(), Presence::Paused);
        assert!(!is_hibernated(rig, &id).await);
        // What is needed comes back.
        rig.output(&id, "pkill -USR1 -f holder").await.unwrap();
        let again = format!("1 {}", before.strip_prefix("0 ").unwrap());
        wait_until("it answers", async || rig.output(&id, "cat sum").await.unwrap() == again).await;
        assert!(memory_mb(rig, &id) >= 96);
    })
    .await;
}
