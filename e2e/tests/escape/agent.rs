//! The agent, process 1 inside: not to be read, written, traced, signalled, starved or replaced.

use crate::{findings, in_sandbox};

/// What anybody may see of any process; all else of process 1 is shut.
const PUBLIC: &str = "autogroup cgroup cmdline comm cpuset cpu_resctrl_groups ksm_stat ksm_merging_pages limits \
    loginuid mounts mountinfo oom_adj oom_score oom_score_adj sched schedstat sessionid stat statm status \
    uid_map gid_map projid_map setgroups wchan coredump_filter patch_state arch_status children timens_offsets";

#[tokio::test(flavor = "multi_thread")]
async fn it_cannot_be_looked_into() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            my %public = map {{ $_ => 1 }} split ' ', '{PUBLIC}';
            for my $dir ('/proc/1', '/proc/1/task/1') {{
                opendir(my $list, $dir) or die; my @names = readdir $list;
                for my $name (@names) {{
                    my $path = "$dir/$name";
                    print "$path can be read\n" if !-d $path && !$public{{$name}} && open(my $file, '<', $path) && sysread($file, my $bytes, 1);
                    print "$path leads somewhere\n" if defined readlink($path);
                }}
                for my $name (qw(fd fdinfo map_files ns)) {{
                    opendir(my $inner, "$dir/$name") or next;
                    for (grep !/^\.\.?$/, readdir $inner) {{
                        print "$dir/$name/$_ leads somewhere\n" if defined readlink("$dir/$name/$_");
                    }}
                }}
                for my $way ("root/etc", "cwd/etc", "fd/3", "exe", "mem") {{
                    print "$dir/$way opens\n" if open(my $file, '<', "$dir/$way") or opendir(my $inner, "$dir/$way");
                    print "$dir/$way opens for writing\n" if sysopen(my $file, "$dir/$way", 2);
                }}
            }}
            "#
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// Its files in `/proc` belong to the sandbox's root, so some open for writing: what is written changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn writing_to_its_files_changes_nothing() {
    in_sandbox(async |rig, id| {
        let pid = rig.host_pids(id).unwrap()[0];
        let kept = || {
            [
                "comm",
                "oom_score_adj",
                "uid_map",
                "gid_map",
                "setgroups",
                "timerslack_ns",
                "limits",
                "loginuid",
            ]
            .map(|name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap())
        };
        let before = kept();
        let script = r#"
            for my $name (qw(comm oom_score_adj oom_adj uid_map gid_map setgroups timerslack_ns loginuid)) {
                for my $dir ('/proc/1', '/proc/1/task/1') {
                    for my $text ('15', '1000', '0 0 4294967295', 'deny', 'evil') {
                        sysopen(my $file, "$dir/$name", 1) or next; syswrite($file, $text);
                    }
                }
            }
        "#;
        findings(rig, id, script).await;
        assert_eq!(kept(), before);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_cannot_be_taken_over() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use strict; use POSIX qw(:errno_h);
            my $room = "\0" x 4096;
            my $address = unpack('Q', pack('p', $room));
            my $vector = pack('QQ', $address, 16);
            my $pidfd = syscall({pidfd_open}, 1, 0);
            sub refused {{
                my ($name, $number, @args) = @_;
                my $got = syscall($number, @args);
                print "$name gave $got, errno ", $! + 0, "\n" unless $got == -1 && ($! == EPERM || $! == EACCES || $! == ENOSYS);
            }}
            refused('ptrace attach', {ptrace}, 16, 1, 0, 0);
            refused('ptrace seize', {ptrace}, 0x4206, 1, 0, 0);
            refused('process_vm_readv', {readv}, 1, $vector, 1, $vector, 1, 0);
            refused('process_vm_writev', {writev}, 1, $vector, 1, $vector, 1, 0);
            refused("pidfd_getfd $_", {getfd}, $pidfd, $_, 0) for 0 .. 20;
            # Its limits: without descriptors, memory or processor time it could not serve any more.
            my $limit = pack('QQ', 0, 0);
            refused("prlimit $_", {prlimit}, 1, $_, $limit, 0) for 0 .. 15;
            my $high = 1 | (1 << 32);
            refused("prlimit of a high half", {prlimit}, $high, 7, $limit, 0);
            "#,
            pidfd_open = libc::SYS_pidfd_open,
            ptrace = libc::SYS_ptrace,
            readv = libc::SYS_process_vm_readv,
            writev = libc::SYS_process_vm_writev,
            getfd = libc::SYS_pidfd_getfd,
            prlimit = libc::SYS_prlimit64,
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
        // A command's own limits are its own matter.
        assert_eq!(rig.output(id, "ulimit -n 100; ulimit -n").await.unwrap(), "100\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_signal_moves_it() {
    in_sandbox(async |rig, id| {
        let started = "cut -d' ' -f22 /proc/1/stat";
        let before = rig.output(id, started).await.unwrap();
        let script = format!(
            "my $fd = syscall({open}, 1, 0); for my $n (1 .. 64) {{ for (1 .. 50) {{ kill $n, 1; syscall({send}, $fd, $n, 0, 0); \
             syscall({queue}, 1, $n, pack('l3x4L2x112', $n, 0, -1, $$, 0)); syscall({tkill}, 1, $n) }} }}",
            open = libc::SYS_pidfd_open,
            send = libc::SYS_pidfd_send_signal,
            queue = libc::SYS_rt_sigqueueinfo,
            tkill = libc::SYS_tkill,
        );
        rig.perl(id, &script).await.unwrap();
        assert_eq!(rig.output(id, started).await.unwrap(), before);
        // Its children begin without the signals that hang over it, and their ends are still seen.
        assert_eq!(rig.output(id, "grep -c 'SigPnd:.*[1-9a-f]' /proc/self/status; sleep 0.01 & wait $!; echo $?").await.unwrap(), "0\n0\n");
    })
    .await;
}

/// As CVE-2019-5736 did with `runc`: the program that started what runs inside must not be replaced from inside.
#[tokio::test(flavor = "multi_thread")]
async fn its_program_cannot_be_replaced() {
    in_sandbox(async |rig, id| {
        let pid = *rig.host_pids(id).unwrap().first().unwrap();
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        assert!(program.ends_with("sandbox-agent"), "{program:?}");
        let file = std::fs::File::open(format!("/proc/{pid}/exe")).unwrap();
        let before = fingerprint(&file);
        let script = r#"
            for my $path ('/dev/sandbox-agent', '/proc/1/exe') {
                for my $mode (1, 2, 1 | 01000, 1 | 02000) {
                    print "$path opens with $mode\n" if sysopen(my $file, $path, $mode);
                }
                print "$path truncated\n" if truncate($path, 0);
                print "$path removed\n" if unlink($path);
                print "$path renamed\n" if rename($path, "$path.old");
                print "$path mode changed\n" if chmod 0777, $path;
                print "$path owner changed\n" if chown 0, 0, $path;
                print "$path times changed\n" if utime 1, 1, $path;
                print "$path replaced\n" if rename('/bin/true', $path);
                print "$path linked\n" if link($path, '/dev/agent2') or link($path, '/workspace/agent2');
            }
            # A process of our own that runs it opens the same file by another way.
            my $pid = fork();
            if (!$pid) { close STDIN; close STDOUT; exec '/dev/sandbox-agent', '--connect', '/none'; exit 1 }
            for (1 .. 200) {
                print "its program opens for writing\n" if sysopen(my $file, "/proc/$pid/exe", 1);
                last if waitpid($pid, 1);
            }
            kill 9, $pid;
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
        assert_eq!(fingerprint(&file), before);
    })
    .await;
}

/// Who it is and what became of it, but for the time it was last read.
fn fingerprint(file: &std::fs::File) -> (u64, u64, u64, i64, i64, i64, u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let it = file.metadata().unwrap();
    (it.ino(), it.size(), it.nlink(), it.mtime_nsec(), it.ctime(), it.ctime_nsec(), it.mode(), it.uid())
}

/// What the agent holds open is no way out for a command that is started "in" one of its descriptors (CVE-2024-21626).
#[tokio::test(flavor = "multi_thread")]
async fn its_descriptors_are_no_working_directory() {
    in_sandbox(async |rig, id| {
        let host = std::env::current_exe().unwrap();
        for number in 0..24 {
            let request = api::ExecuteRequest {
                cwd: Some(format!("/proc/self/fd/{number}")),
                ..e2e::command(&format!(
                    "pwd -P; ls -d ./{0} ../../../../..{0}; ls /proc/self/fd | tail -n +5",
                    host.display()
                ))
            };
            let result =
                rig.engine.sandbox("test", id).execute(request).await.unwrap().collect(10_000).await.unwrap();
            // Its own `/proc` is where a command may be anyway.
            let harmless = result.exit_code.is_none() || result.stdout == "/proc\n";
            assert!(harmless, "descriptor {number}: {result:?}");
        }
        assert_eq!(rig.output(id, "ls /proc/self/fd").await.unwrap(), "0\n1\n2\n3\n", "3 is the list itself");
    })
    .await;
}

/// It goes before its commands where they contend for a processor, and they get nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn it_runs_before_its_commands() {
    in_sandbox(async |rig, id| {
        let nice =
            |stat: &str| stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned();
        let pid = rig.host_pids(id).unwrap()[0];
        assert_eq!(nice(&std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()), "-20");
        assert_eq!(nice(&rig.output(id, "cat /proc/self/stat").await.unwrap()), "0");
    })
    .await;
}
