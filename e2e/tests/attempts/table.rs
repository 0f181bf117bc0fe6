//! The attempts: bash scripts that print `ESCAPED`, or a secret of the host, if they succeed. `call` makes a system call and `node` a
//! device; `PRELUDE` has both.

/// One attempt.
pub struct Attempt {
    pub name: &'static str,
    pub script: &'static str,
}

/// `call NUMBER ARGUMENT...` succeeds if the call does; `node KIND MAJOR MINOR` makes a device at /workspace/node.
pub const PRELUDE: &str = r#"
call() { perl -e 'my @a = map { /^-?[0-9]+$/ ? $_ + 0 : eval(qq("$_")) . "\0" x 256 } @ARGV; my $n = shift @a; exit(syscall($n, @a) >= 0 ? 0 : 1)' -- "$@"; }
node() { rm -f /workspace/node; mknod /workspace/node "$@"; }
"#;

const fn attempt(name: &'static str, script: &'static str) -> Attempt {
    Attempt { name, script }
}

pub const ATTEMPTS: &[Attempt] = &[
    attempt("read a file of the host by its path", r##"cat $HOST/secret"##),
    attempt("read it through the root of process 1", r##"cat /proc/1/root$HOST/secret"##),
    attempt(
        "read it through the root of every process",
        r##"for root in /proc/[0-9]*/root; do cat $root/../..$HOST/secret; done"##,
    ),
    attempt(
        "read it through the working directory of every process",
        r##"for dir in /proc/[0-9]*/cwd; do cat $dir/../../../../../../../..$HOST/secret; done"##,
    ),
    attempt(
        "read it through the descriptors of every process",
        r##"for fd in /proc/[0-9]*/fd/*; do cat $fd/../../../../../../../../..$HOST/secret; done"##,
    ),
    attempt(
        "read it through the mapped files of every process",
        r##"for map in /proc/[0-9]*/map_files/*; do cat $map/../../../../../../..$HOST/secret; done | head -c 100000"##,
    ),
    attempt(
        "leave the root by chroot and '..'",
        r##"perl -e 'mkdir "/workspace/cell"; chroot "/workspace/cell"; chdir ".." for 1 .. 100; chroot "."; open my $f, "<", "$ENV{HOST}/secret" and print <$f>'"##,
    ),
    attempt(
        "leave the root by a descriptor kept over chroot",
        r##"perl -e 'opendir my $d, "/"; mkdir "/workspace/cell"; chroot "/workspace/cell"; chdir $d; chdir ".." for 1 .. 100; open my $f, "<", ".$ENV{HOST}/secret" and print <$f>'"##,
    ),
    attempt(
        "leave the root by a symbolic link to the host's path",
        r##"ln -sfn $HOST /workspace/link; cat /workspace/link/secret; ln -sfn /proc/1/root$HOST /workspace/link; cat /workspace/link/secret"##,
    ),
    attempt(
        "create a file of the host through every root",
        r##"for root in '' /proc/1/root /proc/self/root/..; do touch $root$HOST/escaped; done"##,
    ),
    attempt(
        "open a file by its handle",
        r##"perl -e 'opendir my $d, "/"; for my $inode (1 .. 64, 128, 256) { my $handle = pack("I i Q", 8, 1, $inode); exit !print "ESCAPED\n" if syscall(304, fileno($d) // 3, $handle, 0) >= 0 }'"##,
    ),
    attempt(
        "read the disk of the host",
        r##"node b 254 0 && head -c 1 /workspace/node | grep -q . && echo ESCAPED"##,
    ),
    attempt("read a SCSI disk", r##"node b 8 0 && head -c 1 /workspace/node | grep -q . && echo ESCAPED"##),
    attempt(
        "read an NVMe disk",
        r##"node b 259 0 && head -c 1 /workspace/node | grep -q . && echo ESCAPED"##,
    ),
    attempt("read a loop device", r##"node b 7 0 && head -c 1 /workspace/node | grep -q . && echo ESCAPED"##),
    attempt(
        "read the device under the root",
        r##"numbers=$(awk '$5 == "/" { print $3 }' /proc/self/mountinfo | head -1); node b ${numbers%:*} ${numbers#*:} && head -c 4096 /workspace/node | tr -d '\0' | grep -q . && echo ESCAPED"##,
    ),
    attempt(
        "read every disk in sysfs",
        r##"for file in /sys/block/*/dev /sys/class/block/*/dev; do numbers=$(cat $file) || continue; node b ${numbers%:*} ${numbers#*:} && head -c 4096 /workspace/node | tr -d '\0' | grep -q . && echo ESCAPED; done"##,
    ),
    attempt(
        "read physical memory",
        r##"node c 1 1 && head -c 1 /workspace/node | grep -q . && echo ESCAPED"##,
    ),
    attempt("read kernel memory", r##"node c 1 2 && head -c 1 /workspace/node | grep -q . && echo ESCAPED"##),
    attempt(
        "read input and output ports",
        r##"node c 1 4 && head -c 1 /workspace/node | grep -q . && echo ESCAPED"##,
    ),
    attempt(
        "read the kernel's log by its device",
        r##"node c 1 11 && timeout 1 head -c 4096 /workspace/node | grep -q 'Linux version 6' && echo ESCAPED"##,
    ),
    attempt("read the kernel's log", r##"dmesg | grep -q 'Command line' && echo ESCAPED"##),
    attempt(
        "use the virtual machine monitor",
        r##"node c 10 232 && perl -e 'open my $f, "+<", "/workspace/node" and ioctl($f, 0xae00, 0) == 12 and print "ESCAPED\n"'"##,
    ),
    attempt(
        "make a network interface",
        r##"node c 10 200 && perl -e 'open my $f, "+<", "/workspace/node" and ioctl($f, 0x400454ca, my $r = pack("a16 S x22", "tap7", 2)) and print "ESCAPED\n"'"##,
    ),
    attempt(
        "write to the consoles of the host",
        r##"for tty in /dev/console /dev/tty0 /dev/tty1 /dev/ttyS0 /dev/hvc0; do [ -c $tty ] && timeout 1 sh -c "echo > $tty" && echo ESCAPED; done"##,
    ),
    attempt("mount tmpfs", r##"mount -t tmpfs none /mnt && echo ESCAPED"##),
    attempt("mount proc", r##"mount -t proc none /mnt && echo ESCAPED"##),
    attempt("mount sysfs", r##"mount -t sysfs none /mnt && echo ESCAPED"##),
    attempt("mount devtmpfs", r##"mount -t devtmpfs none /mnt && echo ESCAPED"##),
    attempt("mount debugfs", r##"mount -t debugfs none /mnt && echo ESCAPED"##),
    attempt("mount overlay", r##"mount -t overlay none /mnt && echo ESCAPED"##),
    attempt(
        "mount a cgroup hierarchy and set its release agent",
        r##"mkdir -p /workspace/rdma; mount -t cgroup -o rdma none /workspace/rdma && echo ESCAPED; for file in $(find /sys/fs/cgroup -name release_agent); do echo /escaped > $file && echo ESCAPED; done"##,
    ),
    attempt("bind the root elsewhere", r##"mount --bind / /mnt && echo ESCAPED"##),
    attempt("make the root writable for devices", r##"mount -o remount,dev,suid,exec / && echo ESCAPED"##),
    attempt(
        "remove masks",
        r##"umount /proc/kcore && echo ESCAPED; umount -l /proc && echo ESCAPED; umount /sys/firmware && echo ESCAPED"##,
    ),
    attempt("open a tree of mounts", r##"call 428 -100 / 1 && echo ESCAPED"##),
    attempt("open a file system", r##"call 430 tmpfs 0 && echo ESCAPED"##),
    attempt("change attributes of mounts", r##"call 442 -100 / 0 '\0' 32 && echo ESCAPED"##),
    attempt("change the root mount", r##"call 155 / /mnt && echo ESCAPED"##),
    attempt(
        "set the core pattern",
        r##"echo '|/escaped' > /proc/sys/kernel/core_pattern; sysctl -w kernel.core_pattern='|/escaped'"##,
    ),
    attempt(
        "set the program that loads modules",
        r##"echo /escaped > /proc/sys/kernel/modprobe; sysctl -w kernel.modprobe=/escaped"##,
    ),
    attempt(
        "set the host name of the host",
        r##"echo escaped > /proc/sys/kernel/hostname; hostname escaped; echo escaped > /proc/sys/kernel/domainname"##,
    ),
    attempt(
        "use the keys of the kernel's console",
        r##"echo h > /proc/sysrq-trigger && echo ESCAPED; echo 1 > /proc/sys/kernel/sysrq"##,
    ),
    attempt(
        "set the helper of device events",
        r##"echo /escaped > /sys/kernel/uevent_helper && echo ESCAPED"##,
    ),
    attempt(
        "register a format of programs",
        r##"echo ':escaped:M::EE::/escaped:' > /proc/sys/fs/binfmt_misc/register && echo ESCAPED"##,
    ),
    attempt(
        "read the tracing of the kernel",
        r##"ls /sys/kernel/debug/* /sys/kernel/tracing/* /sys/fs/bpf/* 2>/dev/null | grep -q . && echo ESCAPED"##,
    ),
    attempt(
        "read the addresses of the kernel",
        r##"awk '$1 !~ /^0+$/' /proc/kallsyms | head -1 | grep -q . && echo ESCAPED"##,
    ),
    attempt("read the kernel's core", r##"head -c 4 /proc/kcore | grep -q ELF && echo ESCAPED"##),
    attempt(
        "read the keys of other users",
        r##"grep -q . /proc/keys && echo ESCAPED; call 250 0 -3 0 && echo ESCAPED"##,
    ),
    attempt("load a BPF program", r##"call 321 0 '\1\0\0\0\4\0\0\0\4\0\0\0\1\0\0\0' 72 && echo ESCAPED"##),
    attempt("observe the processor", r##"call 298 '\0' 0 -1 -1 0 && echo ESCAPED"##),
    attempt("set up io_uring", r##"call 425 4 '\0' && echo ESCAPED"##),
    attempt("handle page faults in user space", r##"call 323 0 && echo ESCAPED"##),
    attempt("watch all file accesses", r##"call 300 0 0 && echo ESCAPED"##),
    attempt("add a key", r##"call 248 user name data 4 -3 && echo ESCAPED"##),
    attempt("load a module", r##"call 175 '\0' 1 '' && echo ESCAPED"##),
    attempt("load a module from a file", r##"call 313 0 '' 0 && echo ESCAPED"##),
    attempt("load another kernel", r##"call 246 0 0 0 0 && echo ESCAPED"##),
    attempt("stop the host", r##"call 169 4276215469 672274793 19088743 0 && echo ESCAPED"##),
    attempt("use swap space", r##"call 167 /workspace/node 0 && echo ESCAPED"##),
    attempt("set the clock", r##"call 227 0 '\0' && echo ESCAPED"##),
    attempt("use input and output ports", r##"call 172 3 && echo ESCAPED"##),
    attempt("keep accounts of processes", r##"call 163 /workspace/accounts && echo ESCAPED"##),
    attempt("compare descriptors with the agent's", r##"call 312 1 1 0 0 0 && echo ESCAPED"##),
    attempt(
        "mount through the other calling convention",
        r##"call $((0x40000000 + 165)) none /mnt tmpfs 0 0 && echo ESCAPED"##,
    ),
    attempt(
        "enter a new user namespace",
        r##"unshare --user true && echo ESCAPED; call 56 $((0x10000000 | 17)) 0 0 0 0 && echo ESCAPED"##,
    ),
    attempt(
        "enter new namespaces of mounts, processes and networks",
        r##"for kind in --mount --pid --net --ipc --uts; do unshare $kind true && echo ESCAPED; done"##,
    ),
    attempt(
        "enter the namespaces of process 1",
        r##"for kind in -m -n -p -i -u -U -C; do nsenter -t 1 $kind true && echo ESCAPED; done"##,
    ),
    attempt(
        "trace the agent",
        r##"call 101 16 1 0 0 && echo ESCAPED; call 101 16902 1 0 0 && echo ESCAPED"##,
    ),
    attempt(
        "read the agent's memory",
        r##"perl -e 'open my $f, "<", "/proc/1/mem" and sysseek($f, 0x400000, 0) and sysread($f, my $b, 1) and print "ESCAPED\n"; my $to = "\0" x 8; my $v = pack("P Q", $to, 8); my $r = pack("Q Q", 0x400000, 8); syscall(310, 1, $v, 1, $r, 1, 0) > 0 and print "ESCAPED\n"'"##,
    ),
    attempt(
        "replace the agent's program",
        r##"for file in /proc/1/exe /dev/sandbox-agent; do perl -e 'sysopen(my $f, shift, 1) and print "ESCAPED\n"' $file; done; ln -f /bin/sh /dev/sandbox-agent && echo ESCAPED"##,
    ),
    attempt(
        "find a program of the host behind a process",
        r##"readlink /proc/[0-9]*/exe | grep -E 'runsc|launcher|sandboxd|runc' && echo ESCAPED"##,
    ),
    attempt(
        "take descriptors of the agent",
        r##"perl -e 'my $p = syscall(434, 1, 0); exit if $p < 0; for (0 .. 20) { syscall(438, $p, $_, 0) >= 0 and print "ESCAPED\n" }'"##,
    ),
    attempt(
        "see the processes of the host",
        r##"cat /proc/[0-9]*/cmdline | tr '\0' ' ' | grep -E '[a]ttempts-|[s]andboxd|[s]ystemd' && echo ESCAPED"##,
    ),
    attempt(
        "read the environment of the host",
        r##"cat /proc/[0-9]*/environ | tr '\0' '\n' | grep -E '^(SANDBOXD_AGENT|CARGO)' && echo ESCAPED"##,
    ),
    attempt(
        "gain all capabilities",
        r##"perl -e 'my $h = pack("II", 0x20080522, 0); my $d = pack("I6", (0xffffffff) x 6); syscall(126, $h, $d) == 0 and print "ESCAPED\n"'"##,
    ),
    attempt("raise the limit of open files", r##"ulimit -Hn 100000000 && echo ESCAPED"##),
    attempt(
        "connect to the host's loopback",
        r##"timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/$HOST_PORT" && echo ESCAPED"##,
    ),
    attempt(
        "connect to an abstract socket of the host",
        r##"ABSTRACT=$ABSTRACT perl -MSocket -e 'socket(my $s, PF_UNIX, SOCK_STREAM, 0); connect($s, pack("Sa*", 1, "\0$ENV{ABSTRACT}")) and print "ESCAPED\n"'"##,
    ),
    attempt(
        "connect to a socket file of the host",
        r##"HOST=$HOST perl -MSocket -e 'for my $p ("", "/proc/1/root") { socket(my $s, PF_UNIX, SOCK_STREAM, 0); connect($s, pack_sockaddr_un("$p$ENV{HOST}/socket")) and print "ESCAPED\n" }'"##,
    ),
    attempt(
        "use the sockets of container engines",
        r##"for file in /run/docker.sock /var/run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock /run/dbus/system_bus_socket; do [ -S $file ] && echo ESCAPED; done"##,
    ),
    attempt(
        "see the network of the host",
        r##"grep -vE 'lo:|control0:|Inter|face' /proc/net/dev | grep . && echo ESCAPED"##,
    ),
    attempt("talk to the hypervisor", r##"call 41 40 1 0 && echo ESCAPED"##),
    attempt(
        "read the disk of a neighbour",
        r##"head -c 1 $DATA/sandboxes/$NEIGHBOUR/disk.img | grep . && echo ESCAPED"##,
    ),
    attempt("connect to the agent of a neighbour", r##"ls $RUN/sandboxes/$NEIGHBOUR && echo ESCAPED"##),
    attempt(
        "change the image that neighbours use",
        r##"echo changed > /usr/bin/changed-by-an-attempt; echo changed >> /etc/passwd"##,
    ),
    attempt(
        "raise the limits of the own cgroup",
        r##"for file in $(find /sys/fs/cgroup -name '*limit*' -o -name '*.max' -o -name cgroup.procs -o -name tasks); do timeout 1 sh -c "echo 1 > $file"; done"##,
    ),
];
