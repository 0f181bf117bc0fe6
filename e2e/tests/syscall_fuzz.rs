//! Random system calls from inside leave host, daemon and neighbours unharmed, with each isolation.
//!
//! `./dev fuzz-syscalls MINUTES` runs it. The seed is printed, and `SANDBOXD_FUZZ_SEED` repeats it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use api::{ExecuteRequest, Isolation, SandboxId};
use e2e::{Expected, wait_for_resources};
use e2e::{Rig, RigOptions, command, config};
use engine::ExecutionEvent;

const SECONDS: u64 = 10;
/// How long a command of a neighbour may take meanwhile.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_secs(2);

/// Each child makes random calls until one ends it or its time is over. Arguments are small numbers, limits of integers, descriptors
/// and pointers to buffers with random content, paths or structures.
const FUZZER: &str = r#"
use strict;
my ($seed, $seconds, $jobs, $calls) = @ARGV;
my $end = time + $seconds;
my @paths = map { "$_\0" } qw(/ . .. /proc /proc/self /proc/self/exe /proc/self/mem /proc/self/ns/mnt /proc/1/root /proc/1/mem
    /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys /sys/fs/cgroup /sys/kernel /dev /dev/null /dev/full /dev/ptmx /dev/shm
    /dev/kmsg /dev/mem /tmp /workspace /etc/passwd /bin/sh /nowhere);
my @numbers = (0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 255, 256, 4095, 4096, 65536, 1 << 20, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 40,
    0x7fffffffffffffff, -1, -2, -4096, -9223372036854775807);
sub argument {
    my ($buffers) = @_;
    my $kind = int rand 10;
    return int rand 40 if $kind < 3;
    return $numbers[rand @numbers] if $kind < 5;
    return 1 << int rand 63 if $kind == 5;
    return $paths[rand @paths] . '' if $kind == 6;
    # Perl passes the address of a string, which the call may write to.
    return $$buffers[rand @$buffers];
}
sub job {
    my ($state) = @_;
    srand $state;
    alarm 5;
    $SIG{$_} = 'IGNORE' for qw(HUP PIPE USR1 USR2 TSTP TTIN TTOU);
    for (1 .. $calls) {
        my $bytes = join '', map { chr int rand 256 } 1 .. 64;
        my @buffers = ($bytes x 64, "\0" x 4096, pack('q8', map { $numbers[rand @numbers] } 1 .. 8) . "\0" x 512,
            pack('SSa100', 1, 0, '/workspace/socket') . "\0" x 64);
        my $number = rand() < 0.95 ? int rand 470 : int rand 0x40000000;
        my @arguments = map { argument(\@buffers) } 1 .. 6;
        syscall $number, @arguments;
    }
    require POSIX; POSIX::_exit(0);
}
# A child may end this process, or block its own signals: each line counts, and none is waited for.
$| = 1;
my $state = $seed; my $started = 0; my %running;
while (time < $end) {
    while ((my $ended = waitpid -1, 1) > 0) { delete $running{$ended} }
    for my $pid (keys %running) { kill 9, $pid if $running{$pid} < time - 5 }
    if (keys %running < $jobs) {
        $state = ($state * 1103515245 + 12345) % 2147483648;
        my $pid = fork;
        if (!defined $pid) { select undef, undef, undef, 0.05; next }
        job($state) if !$pid;
        $running{$pid} = time; $started++;
        print "$started\n";
    } else { select undef, undef, undef, 0.01 }
}
kill 9, keys %running;
"#;

fn seconds() -> u64 {
    std::env::var("SANDBOXD_FUZZ_SECONDS").ok().map_or(SECONDS, |text| text.parse().unwrap())
}

fn seed() -> u32 {
    let given = std::env::var("SANDBOXD_FUZZ_SEED").ok().map(|text| text.parse().unwrap());
    given.unwrap_or_else(|| std::process::id() % 100_000)
}

/// What a sandbox must not be able to change on the host.
#[derive(Debug, PartialEq, Eq)]
struct HostState {
    name: String,
    domain: String,
    settings: Vec<(String, String)>,
    mounts: usize,
    modules: usize,
}

impl HostState {
    fn read() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let settings = [
            "kernel/core_pattern",
            "kernel/modprobe",
            "kernel/panic",
            "kernel/randomize_va_space",
            "kernel/sysrq",
            "kernel/threads-max",
            "net/ipv4/ip_forward",
            "vm/overcommit_memory",
            "vm/swappiness",
        ];
        // Of this test's own processes and mounts none come and go between two reads.
        Self {
            name: read("/proc/sys/kernel/hostname"),
            domain: read("/proc/sys/kernel/domainname"),
            settings: settings.map(|name| (name.to_owned(), read(&format!("/proc/sys/{name}")))).into(),
            mounts: read("/proc/1/mountinfo").lines().count(),
            modules: read("/proc/modules").lines().count(),
        }
    }
}

/// The lines in the kernel's log that report a fault of the kernel.
fn complaints() -> BTreeSet<String> {
    let output = std::process::Command::new("dmesg").output().unwrap();
    assert!(output.status.success(), "the kernel's log cannot be read");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let marks =
        ["BUG:", "Oops", "WARNING: CPU", "general protection fault, ", "Kernel panic", "hung_task", "lockup"];
    text.lines().filter(|line| marks.iter().any(|mark| line.contains(mark))).map(str::to_owned).collect()
}

async fn neighbour_works(rig: &Rig, id: &SandboxId, text: &str) {
    let begun = Instant::now();
    let found = tokio::time::timeout(NEIGHBOUR_TIMEOUT, rig.output(id, "cat kept; date +%s")).await;
    let Ok(found) = found else { panic!("a neighbour takes more than {NEIGHBOUR_TIMEOUT:?}") };
    let found = found.unwrap();
    let (kept, clock) = found.trim().split_once('\n').unwrap();
    assert_eq!(kept, text);
    let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(
        here.abs_diff(clock.parse().unwrap()) < 30,
        "the neighbour's clock is {clock}, the host's {here}"
    );
    if begun.elapsed() > Duration::from_secs(5) {
        eprintln!("a neighbour's command took {:?}", begun.elapsed());
    }
}

async fn fuzz(isolation: Isolation) {
    let (seconds, seed) = (seconds(), seed());
    println!("{isolation}: {seconds} s with SANDBOXD_FUZZ_SEED={seed}");
    let rig = Rig::new(RigOptions { isolation, ..RigOptions::default() }).await.unwrap();
    let neighbour = rig.create().await.unwrap();
    rig.output(&neighbour, "echo unharmed > kept").await.unwrap();
    let (before, complaints_before) = (HostState::read(), complaints());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0;
    let mut started = 0;
    // A sandbox that destroys itself is replaced: it may do that.
    while Instant::now() < end {
        rounds += 1;
        let id = rig.create().await.unwrap();
        let part = end.saturating_duration_since(Instant::now()).as_secs().clamp(1, 30);
        let arguments = format!("{} {part} 16 2000", u64::from(seed) + rounds);
        let request = ExecuteRequest {
            stdin: Some(FUZZER.to_owned()),
            timeout_ms: (part + 30) * 1000,
            ..command(&format!("cat > /tmp/fuzz.pl; exec perl /tmp/fuzz.pl {arguments}"))
        };
        let (engine, attacker) = (rig.engine.clone(), id.clone());
        let running = tokio::spawn(async move {
            let mut execution = engine.sandbox("test", &attacker).execute(request).await.unwrap();
            // A line for each process. The output of a sandbox that the fuzzer has ended counts too.
            let mut started = 0;
            loop {
                match execution.next().await {
                    ExecutionEvent::Stdout(bytes) => {
                        started += bytes.iter().filter(|byte| **byte == b'\n').count();
                    }
                    ExecutionEvent::Stderr(_) => {}
                    ExecutionEvent::Done(_) => return (started, None),
                    ExecutionEvent::Failed(error) => return (started, Some(error)),
                }
            }
        });
        while !running.is_finished() {
            tokio::time::sleep(INTERVAL.min(Duration::from_secs(part))).await;
            neighbour_works(&rig, &neighbour, "unharmed").await;
        }
        let (more, error) = running.await.unwrap();
        started += more;
        if let Some(error) = error {
            println!("{isolation}: the fuzzer ended its sandbox after {more} processes: {error}");
        }
        rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
    }
    println!("{isolation}: {rounds} sandboxes, {started} processes");
    assert!(started > 10, "the fuzzer hardly ran");
    neighbour_works(&rig, &neighbour, "unharmed").await;
    let fresh = rig.engine.create("test", config(), rig.template.clone(), None).await.unwrap();
    assert_eq!(rig.output(&fresh.record.id, "echo new").await.unwrap(), "new\n");
    let alive = [neighbour, fresh.record.id.clone()].into();
    let left = wait_for_resources(rig.layout(), &Expected { alive, ..Expected::default() }).await;
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(HostState::read(), before);
    let new: Vec<String> = complaints().difference(&complaints_before).cloned().collect();
    assert_eq!(new, Vec::<String>::new());
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by ./dev fuzz-syscalls"]
async fn random_system_calls_in_a_container_harm_nobody() {
    fuzz(Isolation::Container).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by ./dev fuzz-syscalls"]
async fn random_system_calls_under_gvisor_harm_nobody() {
    fuzz(Isolation::Gvisor).await;
}
