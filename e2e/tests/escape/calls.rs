//! System calls: those that a sandbox does not need are refused with any arguments.

use std::fmt::Write;

use e2e::Rig;

use crate::{findings, in_sandbox};

/// `(name, number, arguments in Perl)`. With these arguments the call would succeed, or nearly, for the host's root.
fn forbidden() -> Vec<(&'static str, i64, &'static str)> {
    vec![
        ("mount tmpfs", libc::SYS_mount, "'none','/mnt','tmpfs',0,0"),
        ("mount proc", libc::SYS_mount, "'proc','/mnt','proc',0,0"),
        ("bind mount", libc::SYS_mount, "'/dev','/mnt','',4096,0"),
        ("remount cgroup", libc::SYS_mount, "'','/sys/fs/cgroup','',32|4096,0"),
        ("remount proc/sys", libc::SYS_mount, "'','/proc/sys','',32|4096,0"),
        ("make shared", libc::SYS_mount, "'','/','',1048576,0"),
        ("umount proc/sys", libc::SYS_umount2, "'/proc/sys',2"),
        ("umount dev", libc::SYS_umount2, "'/dev',2"),
        ("umount agent", libc::SYS_umount2, "'/dev/sandbox-agent',2"),
        ("pivot_root", libc::SYS_pivot_root, "'.','.'"),
        ("fsopen", libc::SYS_fsopen, "'tmpfs',0"),
        ("fsconfig", libc::SYS_fsconfig, "0,6,0,0,0"),
        ("fsmount", libc::SYS_fsmount, "0,0,0"),
        ("fspick", libc::SYS_fspick, "-100,'/',0"),
        ("open_tree", libc::SYS_open_tree, "-100,'/',1"),
        ("move_mount", libc::SYS_move_mount, "-100,'/dev',-100,'/mnt',0"),
        ("mount_setattr", libc::SYS_mount_setattr, "-100,'/proc/sys',0,pack('QQQQ',0,1,0,0),32"),
        ("setns", libc::SYS_setns, "$self_ns,0"),
        ("clone3", libc::SYS_clone3, "pack('Q8',0x10000000,0,0,0,17,0,0,0),64"),
        ("keyctl", libc::SYS_keyctl, "0,-3,0,0,0"),
        ("add_key", libc::SYS_add_key, "'user','k','v',1,-3"),
        ("request_key", libc::SYS_request_key, "'user','k',0,-3"),
        ("bpf", libc::SYS_bpf, "0,pack('L32',1,4,4,1),128"),
        ("perf_event_open", libc::SYS_perf_event_open, "pack('LLQ14',1,128),0,-1,-1,0"),
        ("userfaultfd", libc::SYS_userfaultfd, "1"),
        ("io_uring_setup", libc::SYS_io_uring_setup, "4,pack('L30')"),
        ("io_uring_enter", libc::SYS_io_uring_enter, "0,0,0,0,0,0"),
        ("io_uring_register", libc::SYS_io_uring_register, "0,0,0,0"),
        ("kexec_load", libc::SYS_kexec_load, "0,0,0,0"),
        ("kexec_file_load", libc::SYS_kexec_file_load, "0,0,1,'',0"),
        ("init_module", libc::SYS_init_module, "'x',1,''"),
        ("finit_module", libc::SYS_finit_module, "0,'',0"),
        ("delete_module", libc::SYS_delete_module, "'loop',0"),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, "$root_fd,pack('LlQ',8,1,2),0"),
        ("quotactl", libc::SYS_quotactl, "0x80000100,'/dev/loop0',0,0"),
        ("swapon", libc::SYS_swapon, "'/workspace/swap',0"),
        ("swapoff", libc::SYS_swapoff, "'/workspace/swap'"),
        ("reboot", libc::SYS_reboot, "0xfee1dead,672274793,0x1234567,0"),
        ("acct", libc::SYS_acct, "'/workspace/acct'"),
        ("syslog", libc::SYS_syslog, "3,' 'x4096,4096"),
        ("settimeofday", libc::SYS_settimeofday, "pack('QQ',1,0),0"),
        ("clock_settime", libc::SYS_clock_settime, "0,pack('QQ',1,0)"),
        ("sethostname", libc::SYS_sethostname, "'x',1"),
        ("setdomainname", libc::SYS_setdomainname, "'x',1"),
        ("fanotify_init", libc::SYS_fanotify_init, "0,0"),
        ("kcmp", libc::SYS_kcmp, "1,$$,0,0,0"),
        ("vhangup", libc::SYS_vhangup, ""),
        ("move_pages", libc::SYS_move_pages, "1,0,0,0,0,0"),
        ("migrate_pages", libc::SYS_migrate_pages, "1,0,0,0"),
        ("mbind", libc::SYS_mbind, "0,0,0,0,0,0"),
        ("lookup_dcookie", libc::SYS_lookup_dcookie, "0,' 'x4096,4096"),
        ("READ_IMPLIES_EXEC", libc::SYS_personality, "0x0400000"),
        ("PER_LINUX32", libc::SYS_personality, "8"),
        #[cfg(target_arch = "x86_64")]
        ("iopl", libc::SYS_iopl, "3"),
        #[cfg(target_arch = "x86_64")]
        ("ioperm", libc::SYS_ioperm, "0x80,1,1"),
        #[cfg(target_arch = "x86_64")]
        ("modify_ldt", libc::SYS_modify_ldt, "0,' 'x64,64"),
        #[cfg(target_arch = "x86_64")]
        ("uselib", libc::SYS_uselib, "'/bin/bash'"),
    ]
}

/// Prints a line for each call that did not fail with EPERM or ENOSYS. A process created by a call exits immediately.
const REFUSED: &str = r#"
use strict; use POSIX qw(:errno_h :fcntl_h);
open(my $ns, '<', '/proc/self/ns/net'); my $self_ns = fileno($ns);
open(my $root, '<', '/'); my $root_fd = fileno($root);
sub refused {
    my ($name, $number, @args) = @_;
    my $got = syscall($number, @args);
    my $errno = $! + 0;
    POSIX::_exit(0) if $got == 0 && $name =~ /clone/;
    print "$name gave $got, errno $errno\n" unless $got == -1 && ($errno == EPERM || $errno == ENOSYS);
}
"#;

/// The script ends with an allowed call, which must be reported: otherwise the script does not work.
async fn assert_all_refused(rig: &Rig, id: &api::SandboxId, mut script: String) {
    write!(script, "refused('control',{});", libc::SYS_getppid).unwrap();
    let found = findings(rig, id, &script).await;
    assert!(found.len() == 1 && found[0].starts_with("control gave "), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_reach_the_host_are_refused() {
    in_sandbox(async |rig, id| {
        let mut script = REFUSED.to_owned();
        for (name, number, args) in forbidden() {
            let comma = if args.is_empty() { "" } else { "," };
            writeln!(script, "refused('{name}',{number}{comma}{args});").unwrap();
        }
        assert_all_refused(rig, id, script).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_namespace_can_be_created() {
    in_sandbox(async |rig, id| {
        let mut script = REFUSED.to_owned();
        for (name, flag) in [
            ("mount", libc::CLONE_NEWNS),
            ("cgroup", libc::CLONE_NEWCGROUP),
            ("uts", libc::CLONE_NEWUTS),
            ("ipc", libc::CLONE_NEWIPC),
            ("user", libc::CLONE_NEWUSER),
            ("pid", libc::CLONE_NEWPID),
            ("net", libc::CLONE_NEWNET),
            ("user and mount", libc::CLONE_NEWUSER | libc::CLONE_NEWNS),
        ] {
            writeln!(script, "refused('unshare {name}',{},{flag});", libc::SYS_unshare).unwrap();
            // The kernel uses the low half of the first argument; a filter that compares all bits must not be bypassed.
            let clone = libc::SYS_clone;
            writeln!(script, "refused('clone {name}',{clone},{flag}|17,0,0,0,0);").unwrap();
            writeln!(script, "refused('clone high {name}',{clone},{flag}|17|(1<<32),0,0,0,0);").unwrap();
        }
        writeln!(script, "refused('unshare time',{},128);", libc::SYS_unshare).unwrap();
        assert_all_refused(rig, id, script).await;
    })
    .await;
}

/// In 32-bit programs the numbers mean other calls: 39 is `mkdir` there and `getpid` here.
#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn other_calling_conventions_do_not_pass_the_filter() {
    in_sandbox(async |rig, id| {
        // mov eax,39; mov ebx,path; mov ecx,0755; int 0x80; mov eax,1; xor ebx,ebx; int 0x80; path: "/workspace/i386"
        let code = "b827000000bb78800408b9ed010000cd80b80100000031dbcd80";
        let script = format!(
            r#"
            my $code = pack('H*', '{code}');
            my $entry = 0x08048054;
            my $text = $code . "/workspace/i386\0";
            substr($text, 6, 4) = pack('V', $entry + length($code));
            my $size = 84 + length($text);
            my $elf = "\x7fELF\x01\x01\x01" . "\0" x 9 . pack('vvVVVVVvvvvvv', 2, 3, 1, $entry, 52, 0, 0, 52, 32, 1, 0, 0, 0);
            $elf .= pack('V8', 1, 0, 0x08048000, 0x08048000, $size, $size, 5, 4096);
            open(my $file, '>', '/workspace/small') or die; print $file $elf . $text; close $file;
            chmod 0755, '/workspace/small';
            my $status = system('/workspace/small') & 127;
            print "the 32-bit program created its directory\n" if -e '/workspace/i386';
            print "the 32-bit program ended with $status\n" unless $status == 31 || $status == 11 || $? == -1;
            # The x32 convention: the same numbers with an additional bit.
            my $pid = fork();
            if (!$pid) {{ syscall(0x40000000 | 83, '/workspace/x32', 0755); exit 0 }}
            waitpid($pid, 0);
            print "the x32 call created its directory\n" if -e '/workspace/x32';
            "#
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}
