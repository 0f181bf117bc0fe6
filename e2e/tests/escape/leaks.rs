//! No file of `/proc` or `/sys` has information about other sandboxes or the host's disks.

use std::collections::BTreeSet;

use e2e::{RigOptions, with_rig};

use crate::{findings, in_sandbox};

/// Reads every readable file below `/proc` and `/sys`, following links, and searches names, links and contents for the needles.
/// The last line has the number of files read.
const SEARCH: &str = r#"
    use strict; use Fcntl;
    my @needles = (NEEDLES);
    my (%seen, $read);
    sub search {
        my ($where, $text) = @_;
        for my $needle (@needles) { print "$needle in $where: $&\n" if $text =~ /.{0,40}$needle.{0,40}/ }
    }
    my @left = ('/proc', '/sys');
    while (defined(my $dir = shift @left)) {
        my @it = stat $dir or next;
        next if $seen{"$it[0]:$it[1]"}++;
        opendir(my $list, $dir) or next;
        for my $name (grep !/^\.\.?$/, readdir $list) {
            my $path = "$dir/$name";
            # Links to the files of the sandbox or to this script.
            next if $path =~ m{^/proc/[^/]+/(root|cwd|exe|fd|map_files|task|mem|environ|cmdline)$};
            search($path, $name);
            if (-l $path) { search("link $path", readlink $path) }
            if (-d $path) { push @left, $path; next }
            next unless -f _ && sysopen(my $file, $path, O_RDONLY | O_NONBLOCK);
            my ($text, $bytes) = ('', '');
            $SIG{ALRM} = sub { die };
            eval { alarm 2; $text .= $bytes while sysread($file, $bytes, 65536) && length $text < 4_000_000; alarm 0 };
            alarm 0;
            # The mount of the agent's program has the device of the host's file system, which is documented.
            $text =~ s/^.*sandbox-agent.*$//mg if $name =~ /^mount/;
            search($path, $text);
            $read++;
        }
    }
    print "read $read\n";
"#;

#[tokio::test(flavor = "multi_thread")]
async fn no_kernel_file_shows_other_sandboxes_or_disks() {
    with_rig(RigOptions::default(), async |rig| {
        let (spy, victim) = (rig.create().await.unwrap(), rig.create().await.unwrap());
        rig.output(&victim, "dd if=/dev/urandom of=/workspace/busy bs=1M count=8 conv=fsync 2>/dev/null")
            .await
            .unwrap();
        let data = std::fs::canonicalize(&rig.data).unwrap();
        let needles = [victim.as_str(), data.to_str().unwrap(), rig.run.to_str().unwrap(), "disk.img"];
        let needles: Vec<String> = needles.iter().map(|needle| format!("quotemeta('{needle}')")).collect();
        // Any loop device, and the usual names of the host's disks.
        let needles = format!("{}, '\\bloop\\d+', '\\b[sv]d[a-z]\\d*\\b', '\\bnvme\\d'", needles.join(", "));
        let found = findings(rig, &spy, &SEARCH.replace("NEEDLES", &needles)).await;
        let (read, leaks) = found.split_last().unwrap();
        assert_eq!(leaks, Vec::<String>::new());
        let read: usize = read.strip_prefix("read ").unwrap().parse().unwrap();
        assert!(read > 500, "only {read} files were read");
    })
    .await;
}

/// The host's would show sandboxes of different accounts that they are neighbours.
#[tokio::test(flavor = "multi_thread")]
async fn each_start_of_a_sandbox_has_a_boot_id_of_its_own() {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    if RigOptions::default().runtime.is_some() {
        // OCI runtimes refuse mounts below /proc/sys.
        return;
    }
    with_rig(RigOptions::default(), async |rig| {
        let mut ids = BTreeSet::from([std::fs::read_to_string(FILE).unwrap()]);
        for _ in 0..2 {
            let id = rig.create().await.unwrap();
            let boot_id = rig.output(&id, &format!("cat {FILE}")).await.unwrap();
            assert_eq!(boot_id.len(), "01234567-89ab-cdef-0123-456789abcdef\n".len(), "{boot_id}");
            for attempt in ["echo x >", "rm", "umount", "umount /proc/sys", "mount -o remount,bind,rw"] {
                let attempt =
                    format!("[ $(id -u) = 0 ] && type umount mount >&2 || exit 0; {attempt} {FILE}");
                assert_ne!(rig.run(&id, &attempt).await.unwrap().exit_code, Some(0), "{attempt}");
            }
            assert_eq!(rig.output(&id, &format!("cat {FILE}")).await.unwrap(), boot_id);
            assert!(ids.insert(boot_id), "another sandbox or the host has this boot id");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_sys_that_programs_need_exist() {
    in_sandbox(async |rig, id| {
        assert_eq!(
            rig.output(id, "ls /sys/class; ls /sys/class/net; cat /sys/class/net/lo/address").await.unwrap(),
            "net\nlo\n00:00:00:00:00:00\n"
        );
        let online = rig.output(id, "cat /sys/devices/system/cpu/online").await.unwrap();
        assert_eq!(online, std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap());
        rig.output(id, "lscpu && test -d /sys/fs/cgroup/. && ls /sys/fs/cgroup | grep -q .").await.unwrap();
        let huge = "/sys/kernel/mm/transparent_hugepage/enabled";
        if let Ok(enabled) = std::fs::read_to_string(huge) {
            assert_eq!(rig.output(id, &format!("cat {huge}")).await.unwrap(), enabled);
        }
        // Covers cannot be written, removed or moved.
        for command in
            ["touch /sys/class/x", "umount /sys/block", "mount --move /sys/block /mnt", "rmdir /sys/block"]
        {
            assert_ne!(rig.run(id, command).await.unwrap().exit_code, Some(0), "{command}");
        }
        assert_eq!(
            rig.output(id, "ls -A /sys/block /sys/dev /sys/fs /sys/devices/virtual/block /proc/fs")
                .await
                .unwrap()
                .lines()
                .filter(|line| !line.is_empty() && !line.ends_with(':'))
                .collect::<Vec<_>>(),
            ["cgroup"]
        );
        // Covers do not appear in the list of file systems.
        assert!(!rig.output(id, "df 2>/dev/null").await.unwrap().contains("/sys/block"));
    })
    .await;
}
