//! Files and devices: the image's layers, the disk, `/dev`, `/proc`, `/sys`, and paths that might lead to the host.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use e2e::{RigOptions, rootfs, with_rig};

use crate::{findings, in_sandbox};

#[tokio::test(flavor = "multi_thread")]
async fn no_device_can_be_created_or_opened() {
    in_sandbox(async |rig, id| {
        let script = r#"
            use strict;
            my $mknod = MKNOD;
            my %devices = ('b loop' => [060000, 7, 0], 'b sda' => [060000, 8, 0], 'b vda' => [060000, 254, 0], 'c mem' => [020000, 1, 1],
                'c kmsg' => [020000, 1, 11], 'c kvm' => [020000, 10, 232], 'c fuse' => [020000, 10, 229], 'c tun' => [020000, 10, 200],
                'c loop-control' => [020000, 10, 237], 'c null' => [020000, 1, 3]);
            for my $dir ('/workspace', '/tmp', '/dev', '/dev/shm', '/root') {
                for my $name (sort keys %devices) {
                    my ($type, $major, $minor) = @{$devices{$name}};
                    print "$name created in $dir\n" if syscall($mknod, "$dir/node", $type | 0666, $major << 8 | $minor) == 0;
                    unlink "$dir/node";
                }
            }
            # The complete contents of /dev.
            my %known = map { $_ => 1 } qw(null zero full random urandom tty ptmx console pts/ptmx sandbox-agent);
            my $walk; $walk = sub {
                my ($dir) = @_;
                opendir(my $list, $dir) or return;
                for my $path (map { "$dir/$_" } grep !/^\.\.?$/, readdir $list) {
                    my $name = substr($path, 5);
                    if (-l $path) { print "$path links to ", readlink $path, "\n" unless readlink($path) =~ m{^/proc/(self/fd(/[012])?|kcore)$|^pts/ptmx$} }
                    elsif (-d $path) { $walk->($path) }
                    else { print "$path exists\n" unless $known{$name} }
                }
            };
            $walk->('/dev');
            for my $path (map { "/dev/$_" } qw(null zero random tty)) {
                print "$path changed mode\n" if chmod 0600, $path;
                print "$path changed owner\n" if chown 5, 5, $path;
                print "$path removed\n" if unlink $path;
            }
        "#;
        let before = device_state();
        let script = script.replace("MKNOD", &libc::SYS_mknod.to_string());
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
        assert_eq!(device_state(), before);
    })
    .await;
}

fn device_state() -> Vec<(u32, u32, i64)> {
    let devices = ["/dev/null", "/dev/zero", "/dev/random", "/dev/full", "/dev/tty"];
    devices
        .iter()
        .map(|path| std::fs::metadata(path).unwrap())
        .map(|meta| (meta.mode(), meta.uid(), meta.ctime()))
        .collect()
}

/// No file of the kernel can be opened for writing.
#[tokio::test(flavor = "multi_thread")]
async fn no_kernel_file_is_writable() {
    in_sandbox(async |rig, id| {
        let script = r#"
            my $walk; $walk = sub {
                my ($dir) = @_;
                opendir(my $list, $dir) or return;
                for my $path (map { "$dir/$_" } grep !/^\.\.?$/, readdir $list) {
                    next if -l $path || $path =~ m{^/proc/\d+$};
                    if (-d _) { $walk->($path); mkdir("$path/x") and print "a directory was created in $path\n" }
                    # A masked file is the null device.
                    elsif (!-c _) { print "$path\n" if sysopen(my $file, $path, 1 | 04000) }
                }
            };
            $walk->('/proc'); $walk->('/sys');
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_secrets_are_masked() {
    in_sandbox(async |rig, id| {
        let script = r#"
            for my $path (qw(/proc/kcore /proc/keys /proc/timer_list /proc/sched_debug /proc/interrupts /proc/latency_stats
                /proc/kmsg /dev/kmsg /dev/mem /proc/kpagecount /proc/kpageflags /proc/slabinfo /proc/vmallocinfo /proc/pagetypeinfo
                /proc/iomem.not /sys/firmware/acpi /sys/kernel/debug /sys/kernel/tracing /sys/kernel/security /proc/acpi /proc/scsi)) {
                if (-d $path) {
                    opendir(my $list, $path) or next;
                    my @inside = grep !/^\.\.?$/, readdir $list;
                    print "$path contains @inside\n" if @inside;
                } else {
                    print "$path is readable\n" if sysopen(my $file, $path, 04000) and sysread($file, my $bytes, 1);
                }
            }
            if (open(my $symbols, '<', '/proc/kallsyms')) {
                while (<$symbols>) { if (!/^0+ /) { print "an address: $_"; last } }
            }
        "#;
        assert_eq!(findings(rig, id, script).await, Vec::<String>::new());
        // The list of mounts does not contain the host's directories.
        let mounts = rig.output(id, "cat /proc/self/mountinfo").await.unwrap();
        for path in [rootfs().unwrap(), rig.data.clone(), rig.run.clone()] {
            let path = path.to_string_lossy();
            assert!(!mounts.contains(&*path), "{path} is in {mounts}");
        }
    })
    .await;
}

/// The layers are shared: changes of a sandbox go to its own disk.
#[tokio::test(flavor = "multi_thread")]
async fn image_layers_are_not_modified() {
    let layer = rootfs().unwrap();
    let before = tree(&layer);
    in_sandbox(async |rig, id| {
        let script = r"
            exec 2>/dev/null
            echo evil >> /etc/passwd; echo evil > /etc/shadow; echo evil >> /bin/cat
            chmod 4777 /bin/ls; chown 1000:1000 /bin/mv; touch -d @1 /etc/group; rm -rf /usr/share /var/lib
            mv /etc/init.d /etc/moved; ln /bin/sleep /bin/hard; ln -sf /etc/hostname /bin/true; mkdir /usr/lib/new
            mknod /etc/resolv.conf c 0 0; truncate -s 0 /bin/dd
            perl -e 'open F, q(+<), q(/bin/grep); seek F, 0, 0; print F q(evil)'
            true
        ";
        rig.output(id, script).await.unwrap();
        assert_eq!(rig.output(id, "tail -n 1 /etc/passwd").await.unwrap(), "evil\n");
        // A neighbour with the same image does not see the changes.
        let other = rig.create().await.unwrap();
        assert_eq!(rig.output(&other, "tail -n 1 /etc/passwd; ls -d /usr/share").await.unwrap().lines().last(), Some("/usr/share"));
        assert!(!rig.output(&other, "cat /etc/passwd").await.unwrap().contains("evil"));
    })
    .await;
    let after = tree(&layer);
    let changed: Vec<_> =
        before.iter().filter(|(path, meta)| after.get(*path) != Some(*meta)).map(|(path, _)| path).collect();
    assert_eq!(changed, Vec::<&PathBuf>::new());
    assert_eq!(after.len(), before.len());
}

type Metadata = (u64, i64, i64, i64, i64, u32, u32, u64);

/// The metadata of all files. Their contents cannot change without changing a time.
fn tree(root: &Path) -> BTreeMap<PathBuf, Metadata> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let values = (
                meta.size(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec(),
                meta.mode(),
                meta.uid(),
                meta.nlink(),
            );
            if meta.is_dir() {
                left.push(path.clone());
            }
            found.insert(path, values);
        }
    }
    found
}

/// Known ways to leave a root directory. They are tested with a file that exists only on the host.
#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_to_the_host() {
    in_sandbox(async |rig, id| {
        let secret = rig.data.join("only-the-host");
        std::fs::write(&secret, "a secret of the host").unwrap();
        let script = format!(
            r#"
            my $secret = '{0}';
            my @roots = ('', '/proc/self/root', '/proc/self/cwd', '/proc/1/root', '/proc/1/cwd', '/proc/self/task/'.$$.'/root',
                '/..', '/../../../..', '/proc/self/root/..', '/dev/fd/0/..', '/proc/self/fd/0', '/proc/thread-self/root');
            push @roots, "/proc/1/fd/$_", "/proc/1/map_files/$_" for 0 .. 30;
            opendir(my $dir, '/') or die;
            mkdir '/workspace/jail'; mkdir '/workspace/jail/a';
            symlink('../../../../../../../..', '/workspace/up'); symlink('/proc/1/root', '/workspace/agent');
            push @roots, '/workspace/up', '/workspace/agent', '/workspace/jail/../../..';
            sub search {{ my ($how) = @_; for (@roots) {{ print "$how: $_\n" if -e "$_$secret"; print "$how: $_ is the host's /\n" if -e "$_/.dockerenv-host" }} }}
            search('unchanged root');
            # Leave a chroot through an open directory.
            chdir '/workspace/jail'; chroot '/workspace/jail' or print "no chroot: $!\n";
            chdir $dir; chdir '..' for 1 .. 50; chroot '.';
            search('after the chroot');
            print "the root is not that of the sandbox\n" unless -e '/dev/sandbox-agent';
            "#,
            secret.canonicalize().unwrap().display()
        );
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "a secret of the host");
    })
    .await;
}

/// Mount points cannot be replaced by links, which the next start would follow on the host.
#[tokio::test(flavor = "multi_thread")]
async fn mount_points_cannot_be_replaced() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        let target = rig.data.join("target-of-a-link");
        std::fs::create_dir(&target).unwrap();
        let script = format!(
            r#"
            for my $point (qw(/dev /proc /sys /dev/pts /dev/shm /dev/mqueue /sys/fs/cgroup /dev/sandbox-agent /dev/null)) {{
                print "$point moved\n" if rename $point, "$point.old";
                print "$point removed\n" if rmdir $point or unlink $point;
                print "$point replaced\n" if rename '/workspace', $point;
            }}
            for my $name (qw(rootfs disk l0)) {{ symlink('{0}', "/$name"); }}
            "#,
            target.canonicalize().unwrap().display()
        );
        assert_eq!(findings(rig, &id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// The overlay stores its metadata in attributes that only the host's root may write; forged ones would open a layer.
#[tokio::test(flavor = "multi_thread")]
async fn overlay_attributes_cannot_be_forged() {
    in_sandbox(async |rig, id| {
        let script = r#"
            mkdir '/workspace/d'; open(my $f, '>', '/workspace/f'); close $f;
            for my $name (qw(opaque redirect metacopy origin impure whiteout uuid overlay.opaque protattr)) {
                for my $path ('/workspace/d', '/workspace/f', '/etc', '/') {
                    my ($path, $value) = ("$path", 'y');
                    print "trusted.overlay.$name set on $path\n" if syscall(SETXATTR, $path, "trusted.overlay.$name", $value, 1, 0) == 0;
                    print "trusted.overlay.$name on $path removed\n" if syscall(REMOVEXATTR, $path, "trusted.overlay.$name") == 0;
                }
            }
            my ($file, $other, $name, $dir, $value, $target) = ('/workspace/f', 'trusted.x', 'user.overlay.opaque', '/etc', 'y', '/root');
            my $redirect = 'user.overlay.redirect';
            print "trusted.x set\n" if syscall(SETXATTR, $file, $other, $value, 1, 0) == 0;
            # The overlay ignores attributes of the user namespace: the directory is unchanged.
            syscall(SETXATTR, $dir, $name, $value, 1, 0);
            syscall(SETXATTR, $dir, $redirect, $target, 5, 0);
            print "/etc is empty\n" unless -e '/etc/passwd';
        "#;
        let script = script
            .replace("REMOVEXATTR", &libc::SYS_removexattr.to_string())
            .replace("SETXATTR", &libc::SYS_setxattr.to_string());
        assert_eq!(findings(rig, id, &script).await, Vec::<String>::new());
    })
    .await;
}

/// Files that the sandbox's root creates belong to an unprivileged id on the host.
#[tokio::test(flavor = "multi_thread")]
async fn files_belong_to_the_sandboxs_ids() {
    in_sandbox(async |rig, id| {
        rig.output(id, "echo x > /workspace/f; cp /bin/bash /workspace/b; chmod 6755 /workspace/b; chown 33:44 /workspace/f").await.unwrap();
        let pid = *rig.host_pids(id).unwrap().first().unwrap();
        let range = u64::from(rig.uid_base)..u64::from(rig.uid_base) + (1 << 26);
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        for path in ["workspace/f", "workspace/b", "workspace", "etc/passwd", "bin/bash", "tmp"] {
            let meta = std::fs::metadata(root.join(path)).unwrap();
            assert!(range.contains(&meta.uid().into()) && range.contains(&meta.gid().into()), "{path}: {}:{}", meta.uid(), meta.gid());
        }
        let meta = std::fs::metadata(root.join("workspace/f")).unwrap();
        assert_eq!((meta.uid() % 65_536, meta.gid() % 65_536), (33, 44));
    })
    .await;
}
