//! Privileges: the capabilities of a command, and the usual ways to gain more.

use e2e::{RigOptions, command, with_rig};

use crate::{findings, in_sandbox};

/// The documented set: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
/// sys_chroot, mknod, audit_write, setfcap.
const ALLOWED: [u32; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_the_documented_capabilities() {
    in_sandbox(async |rig, id| {
        let mask = format!("{:016x}", ALLOWED.iter().fold(0u64, |mask, bit| mask | 1 << bit));
        let none = format!("{:016x}", 0);
        let status = rig.output(id, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").await.unwrap();
        let expected = format!(
            "CapInh:\t{none}\nCapPrm:\t{mask}\nCapEff:\t{mask}\nCapBnd:\t{mask}\nCapAmb:\t{none}\nNoNewPrivs:\t1\nSeccomp:\t2\n"
        );
        assert_eq!(status, expected);
        // They are valid only in the sandbox's own user namespace.
        let map = rig.output(id, "cat /proc/self/uid_map /proc/self/gid_map").await.unwrap();
        for line in map.lines() {
            let fields: Vec<u32> = line.split_whitespace().map(|field| field.parse().unwrap()).collect();
            let [0, host, 65_536] = fields[..] else { panic!("{map}") };
            assert!(host >= rig.uid_base && host % 65_536 == 0, "{map}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_user_gains_no_more_than_root_has() {
    with_rig(RigOptions::default(), async |rig| {
        let config = api::SandboxConfig { default_user: true, ..e2e::config() };
        let created = rig.engine.create("test", config, rig.template.clone(), None).await.unwrap();
        let id = &created.record.id;
        // In place of `sudo`, which the image need not have.
        rig.output(id, "cp /bin/bash /workspace/b && chmod 4755 /workspace/b").await.unwrap();
        let as_user = async |text: &str| {
            let request = api::ExecuteRequest { user: Some("user".to_owned()), ..command(text) };
            let result = rig.engine.sandbox("test", id).execute(request).await.unwrap();
            let result = result.collect(10_000).await.unwrap();
            assert_eq!(result.exit_code, Some(0), "{result:?}");
            result.stdout
        };
        let who = as_user(
            "id -un; id -Gn; echo $HOME; stat -c '%U %G %a' $HOME; touch $HOME/a; cat /proc/self/status",
        )
        .await;
        assert!(who.starts_with("user\nuser\n/home/user\nuser user 755\n"), "{who}");
        assert!(who.contains("CapEff:\t0000000000000000\n") && who.contains("NoNewPrivs:\t0\n"), "{who}");
        let mask = format!("{:016x}", ALLOWED.iter().fold(0u64, |mask, bit| mask | 1 << bit));
        let gained =
            as_user("/workspace/b -p -c 'grep -E \"^(CapEff|CapBnd|Seccomp:)\" /proc/self/status'").await;
        assert_eq!(gained, format!("CapEff:\t{mask}\nCapBnd:\t{mask}\nSeccomp:\t2\n"));
        // Neither mounts nor namespaces, and the agent stays out of reach.
        for forbidden in [
            "mount -t tmpfs none /mnt",
            "unshare -m true",
            "unshare -U true",
            "kill -9 1; kill -0 1; head -c1 /proc/1/mem",
        ] {
            let denied =
                as_user(&format!("/workspace/b -p -c '{forbidden}' 2>/dev/null && echo done || echo denied"))
                    .await;
            assert_eq!(denied, "denied\n", "{forbidden}");
        }
        // Commands without a user keep no_new_privs.
        assert_eq!(rig.output(id, "grep NoNewPrivs /proc/self/status").await.unwrap(), "NoNewPrivs:\t1\n");
        assert_eq!(
            rig.output(id, "cat /etc/sudoers.d/user").await.unwrap(),
            "user ALL=(ALL:ALL) NOPASSWD: ALL\n"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn setuid_programs_and_file_capabilities_give_nothing() {
    in_sandbox(async |rig, id| {
        rig.output(id, "cp /bin/bash /workspace/b && chmod 6755 /workspace/b && chmod 755 /workspace && mkdir -m 777 /workspace/open").await.unwrap();
        let whoami = |program: &str| format!("setpriv --reuid 1000 --regid 1000 --clear-groups {program} -p -c 'id -u; id -g; grep CapEff /proc/self/status'");
        let expected = "1000\n1000\nCapEff:\t0000000000000000\n";
        assert_eq!(rig.output(id, &whoami("/workspace/b")).await.unwrap(), expected);
        // File capabilities, the documented set and all, give nothing to a user or to root.
        let script = format!(
            r#"
            system('cp /usr/bin/perl /workspace/p');
            my ($path, $name) = ('/workspace/p', 'security.capability');
            my $look = 'open F, q(/proc/self/status); print grep /CapEff/, <F>';
            for my $mask (0xa80425fb, 0xffffffff) {{
                # VFS_CAP_REVISION_2 with the effective bit.
                my $all = pack('V5', 0x02000001, $mask, 0, $mask == 0xffffffff ? 0xffffffff : 0, 0);
                print "no attribute: $!\n" if syscall({}, $path, $name, $all, 20, 0) != 0;
                # A change of user empties the permitted set, which `setpriv` would keep.
                my $pid = open(my $out, '-|') // die;
                if (!$pid) {{ syscall({}, 1000, 1000, 1000); exec('/workspace/p', '-e', $look) or print "refused\n"; exit }}
                print <$out>;
            }}
            "#,
            libc::SYS_setxattr,
            libc::SYS_setresuid,
        );
        assert_eq!(findings(rig, id, &script).await, ["CapEff:\t0000000000000000", "refused"]);
        rig.output(id, "cp /usr/bin/perl /workspace/p && setpriv --bounding-set +all true 2>/dev/null; true").await.unwrap();
        let rooted = "CapEff:\t00000000a80425fb";
        assert_eq!(rig.output(id, "/workspace/p -e 'open F, q(/proc/self/status); print grep /CapEff/, <F>'").await.unwrap().trim(), rooted);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_privileges_cannot_be_regained() {
    in_sandbox(async |rig, id| {
        let script = format!(
            r#"
            use strict;
            # capset: version 3, this process, everything.
            print "capset gave all\n" if syscall({capset}, my $head = pack('LL', 0x20080522, 0), my $sets = pack('L6', (0xffffffff) x 6)) == 0;
            # PR_CAP_AMBIENT_RAISE of SYS_ADMIN; PR_SET_NO_NEW_PRIVS off; PR_SET_SECCOMP off; securebits.
            print "ambient raised\n" if syscall({prctl}, 47, 2, 21, 0, 0) == 0;
            print "no_new_privs off\n" if syscall({prctl}, 38, 0, 0, 0, 0) == 0;
            print "seccomp off\n" if syscall({prctl}, 22, 0, 0, 0, 0) == 0;
            for my $user (0 .. 3) {{
                my $id = (65536, 4294967294, 2147483648, 100000)[$user];
                print "became user $id\n" if syscall({setresuid}, $id, $id, $id) == 0;
            }}
            for my $map (qw(uid_map gid_map setgroups)) {{
                if (sysopen(my $file, "/proc/self/$map", 1)) {{ print "$map written\n" if syswrite($file, "0 0 4294967295\n") }}
            }}
            # More of what limits hold back.
            for my $what (4, 7) {{
                my ($unlimited, $now) = (pack('QQ', 1 << 60, 1 << 60), pack('QQ', 0, 0));
                syscall({prlimit}, 0, $what, $unlimited, 0);
                syscall({prlimit}, 0, $what, 0, $now);
                print "limit $what raised\n" if (unpack('QQ', $now))[1] > 65536;
            }}
            print "more priority\n" if syscall({setpriority}, 0, 0, -20) == 0;
            print "real time\n" if syscall({setscheduler}, 0, 1, my $real = pack('l', 50)) == 0;
            open(my $score, '>', '/proc/self/oom_score_adj') or die;
            print "less likely to be killed\n" if syswrite($score, '-1000');
            "#,
            capset = libc::SYS_capset,
            prctl = libc::SYS_prctl,
            setresuid = libc::SYS_setresuid,
            prlimit = libc::SYS_prlimit64,
            setpriority = libc::SYS_setpriority,
            setscheduler = libc::SYS_sched_setscheduler,
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// The environment of a command comes from its owner and the image, not from the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn the_daemons_environment_is_not_inherited() {
    in_sandbox(async |rig, id| {
        // The test's own environment has these; cargo sets them.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let environment = rig.output(id, "env").await.unwrap();
        for word in ["CARGO", "RUST", "SANDBOXD", "SSH_"] {
            assert!(!environment.contains(word), "{word} in {environment}");
        }
        let mut request = command("env | grep -c LD_PRELOAD; cat /proc/1/environ");
        request.env = [("LD_PRELOAD".to_owned(), "/workspace/evil.so".to_owned())].into();
        let result =
            rig.engine.sandbox("test", id).execute(request).await.unwrap().collect(10_000).await.unwrap();
        assert_ne!(result.exit_code, Some(0), "process 1 shows its environment: {result:?}");
        assert_eq!(result.stdout, "1\n");
    })
    .await;
}
