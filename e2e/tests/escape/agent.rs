//! The agent, process 1 in the sandbox, cannot be read, written, traced, signalled, starved or replaced.

use crate::{findings, in_sandbox};

/// The files of a process that everyone may read; all others of process 1 are closed.
const PUBLIC: &str = "autogroup cgroup cmdline comm cpuset cpu_resctrl_groups ksm_stat ksm_merging_pages limits \
    loginuid mounts mountinfo oom_adj oom_score oom_score_adj sched schedstat sessionid stat statm status \
    uid_map gid_map projid_map setgroups wchan coredump_filter patch_state arch_status children timens_offsets";

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_cannot_be_inspected() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            my %public = map {{ $_ => 1 }} split ' ', '{PUBLIC}';
            for my $dir ('/proc/1', '/proc/1/task/1') {{
                opendir(my $list, $dir) or die; my @names = readdir $list;
                for my $name (@names) {{
                    my $path = "$dir/$name";
                    print "$path can be read\n" if !-d $path && !$public{{$name}} && open(my $file, '<', $path) && sysread($file, my $bytes, 1);
                    print "$path is a readable link\n" if defined readlink($path);
                }}
                for my $name (qw(fd fdinfo map_files ns)) {{
                    opendir(my $inner, "$dir/$name") or next;
                    for (grep !/^\.\.?$/, readdir $inner) {{
                        print "$dir/$name/$_ is a readable link\n" if defined readlink("$dir/$name/$_");
                    }}
                }}
                for my $entry ("root/etc", "cwd/etc", "fd/3", "exe", "mem") {{
                    print "$dir/$entry opens\n" if open(my $file, '<', "$dir/$entry") or opendir(my $inner, "$dir/$entry");
                    print "$dir/$entry opens for writing\n" if sysopen(my $file, "$dir/$entry", 2);
                }}
            }}
            "#
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// The agent's files in `/proc` belong to the sandbox's root, so some open for writing; writes have no effect.
#[tokio::test(flavor = "multi_thread")]
async fn writes_to_the_agents_proc_files_have_no_effect() {
    in_sandbox(async |rig, id| {
        let pid = rig.host_pids(id).unwrap()[0];
        let files = || {
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
        let before = files();
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
        assert_eq!(files(), before);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_cannot_be_traced_or_limited() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use strict; use POSIX qw(:errno_h);
            my $buffer = "\0" x 4096;
            my $address = unpack('Q', pack('p', $buffer));
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
            # Its resource limits: without descriptors, memory or CPU time the agent could not work.
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
        // A command may lower its own limits.
        assert_eq!(rig.output(id, "ulimit -n 100; ulimit -n").await.unwrap(), "100\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_do_not_affect_the_agent() {
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
        // Its children start without pending signals, and their exit codes are still collected.
        assert_eq!(rig.output(id, "grep -c 'SigPnd:.*[1-9a-f]' /proc/self/status; sleep 0.01 & wait $!; echo $?").await.unwrap(), "0\n0\n");
    })
    .await;
}

/// As in CVE-2019-5736 with `runc`: a sandbox must not replace the program that starts its processes.
#[tokio::test(flavor = "multi_thread")]
async fn the_agents_program_cannot_be_replaced() {
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
            # A process that runs the program has another link to the same file.
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

/// Identity and metadata of a file, without its access time.
fn fingerprint(file: &std::fs::File) -> (u64, u64, u64, i64, i64, i64, u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let meta = file.metadata().unwrap();
    (
        meta.ino(),
        meta.size(),
        meta.nlink(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
        meta.mode(),
        meta.uid(),
    )
}

/// A command with one of the agent's descriptors as working directory does not reach the host (CVE-2024-21626).
#[tokio::test(flavor = "multi_thread")]
async fn the_agents_descriptors_are_not_usable_as_working_directory() {
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
            // The sandbox's own `/proc` is accessible anyway.
            let harmless = result.exit_code.is_none() || result.stdout == "/proc\n";
            assert!(harmless, "descriptor {number}: {result:?}");
        }
        assert_eq!(rig.output(id, "ls /proc/self/fd").await.unwrap(), "0\n1\n2\n3\n", "3 is the list itself");
    })
    .await;
}

/// The agent has a higher CPU priority than its commands, which do not inherit it.
#[tokio::test(flavor = "multi_thread")]
async fn the_agent_has_a_higher_priority_than_its_commands() {
    in_sandbox(async |rig, id| {
        let nice =
            |stat: &str| stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned();
        let pid = rig.host_pids(id).unwrap()[0];
        assert_eq!(nice(&std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()), "-20");
        assert_eq!(nice(&rig.output(id, "cat /proc/self/stat").await.unwrap()), "0");
    })
    .await;
}
