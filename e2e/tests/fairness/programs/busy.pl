# Work that never ends, of one kind.
my ($kind, $processes, @more) = @ARGV;
# A variable: the value of a constant expression would be built by the compiler, in every process.
my $mb = 1 << 20;
my %work = (
    loop => sub { my $n = 0; $n++ while $n < 1e7 },
    memory => sub { my $bytes = 'x' x (64 * $mb); my $copy = $bytes ^ $bytes },
    touch => sub { my $bytes = "\0" x (64 * $mb) },
    sync => sub { open(my $file, '>', "/workspace/sync$$"); syswrite $file, 'x' x 65536; call('sync') },
    fsync => sub { open(my $file, '>', "/workspace/fsync$$"); syswrite $file, 'x' x $mb; call('fsync', fileno $file) },
    write => sub { open(my $file, '>', "/workspace/big$$"); for (1 .. 256) { syswrite($file, 'x' x $mb) or last } },
    read => sub {
        my $name = "/workspace/read$$";
        if (!-e $name) { open(my $file, '>', $name); syswrite($file, 'x' x $mb) for 1 .. 512 }
        open(my $file, '<', $name); my $bytes; 1 while sysread($file, $bytes, 1048576);
    },
    truncate => sub { my $name = "/workspace/truncated$$"; open(my $file, '>', $name); syswrite($file, 'x' x $mb) for 1 .. 32; call('fsync', fileno $file); close $file; unlink $name },
    names => sub { our $number; stat('/workspace/no-such-name-' . $number++) for 1 .. 1000 },
    directories => sub { our $made; mkdir "/workspace/d$$-" . $made++ or ($made = 0) for 1 .. 100; if ($made > 5000) { rmdir "/workspace/d$$-$_" for 0 .. $made; $made = 0 } },
    crash => sub { my $child = fork; if (defined $child && !$child) { kill 11, $$; POSIX::_exit(0) } waitpid $child, 0 if $child },
    sleep => sub { select undef, undef, undef, 0.00005 },
    membarrier => sub { call('membarrier', 1, 0, 0) for 1 .. 100 },
    proc => sub { for my $name (qw(meminfo stat net/tcp net/dev self/smaps slabinfo vmstat zoneinfo interrupts)) { open(my $file, '<', "/proc/$name") or next; my $text = do { local $/; <$file> } } },
    random => sub { my $bytes = ' ' x $mb; call('getrandom', $bytes, length $bytes, 0) },
    connections => sub {
        our $listener; our $address;
        if (!$listener) { socket($listener, AF_INET, SOCK_STREAM, 0); bind($listener, pack_sockaddr_in(0, inet_aton('127.0.0.1'))); listen($listener, 128); $address = getsockname $listener }
        socket(my $socket, AF_INET, SOCK_STREAM, 0) or return; connect($socket, $address) or return; accept(my $accepted, $listener);
    },
    terminal => sub {
        # Bytes of a pseudo-terminal are moved by threads of the kernel.
        our ($terminal, $other);
        if (!$terminal) { sysopen($terminal, '/dev/ptmx', O_RDWR) or return; my $number = pack('L', 0); ioctl($terminal, 0x80045430, $number); ioctl($terminal, 0x40045431, pack('l', 0)); sysopen($other, '/dev/pts/' . unpack('L', $number), O_RDWR | O_NOCTTY) or return; nonblocking($_) for $terminal, $other }
        syswrite $other, 'x' x 4096; sysread($terminal, my $bytes, 65536); syswrite $terminal, "y\n" x 100; sysread($other, $bytes, 65536);
    },
    packets => sub {
        our $out;
        if (!$out) { socket($out, AF_INET, SOCK_DGRAM, 0); connect($out, pack_sockaddr_in(9, inet_aton($more[0]))) }
        send($out, 'x' x 100, 0) for 1 .. 1000;
    },
    links => sub {
        # Each question about all links takes a lock of the whole host.
        our $route;
        if (!$route) { socket($route, 16, SOCK_RAW, 0) or return }
        send($route, pack('LSSLLCx3lLL', 32, 18, 0x301, 1, 0, 0, 0, 0, 0), 0); sysread($route, my $bytes, 1 << 16); sysread($route, $bytes, 1 << 16);
    },
    everybody => sub { kill 0, -1 for 1 .. 100 },
    expiry => sub {
        # Timers of many descriptors that expire at the same instant stop the processor that they are on.
        our @timers;
        open(my $file, '<', '/proc/uptime') or return;
        my $instant = POSIX::floor((split ' ', <$file>)[0]) + 2;
        close $file;
        while (@timers < 15000) { my $fd = call('timerfd_create', 1, 0); last if $fd < 0; push @timers, $fd }
        call('timerfd_settime', $_, 1, pack('q4', 0, 0, $instant, 0), 0) for @timers;
        select undef, undef, undef, 2.1;
    },
    advice => sub {
        # The cache of an image belongs to all sandboxes that use it.
        for my $name (glob '/usr/lib/x86_64-linux-gnu/*.so* /usr/bin/perl /bin/bash') { open(my $file, '<', $name) or next; call('fadvise64', fileno $file, 0, 0, 4) }
    },
    memory_limit => sub {
        # The kernel describes the sandbox in its log each time it kills a program of it.
        our $idle; $idle //= do { for (1 .. 30) { my $child = fork; hold() if defined $child && !$child } 1 };
        my $child = fork; if (defined $child && !$child) { my @bytes; push @bytes, 'x' x (16 * $mb) while 1 } waitpid $child, 0 if $child;
    },
    formats => sub {
        # A kernel that loads modules looks for one that knows the format.
        my $name = "/workspace/format$$";
        open(my $file, '>', $name) or return; syswrite $file, pack('N', int rand 2 ** 32) . "\xff" x 60; close $file; chmod 0755, $name;
        my ($arguments, $environment) = (pack('pQ', $name, 0), pack('Q', 0));
        call('execve', $name, $arguments, $environment) for 1 .. 100;
    },
    refused => sub {
        our $out; socket($out, AF_INET, SOCK_DGRAM, 0) if !$out;
        send($out, 'x', 0, pack_sockaddr_in(1 + int rand 65535, pack('C4', 10, map { int rand 256 } 1 .. 3))) for 1 .. 200;
        my @tried;
        for (1 .. 20) { socket(my $socket, AF_INET, SOCK_STREAM, 0) or last; nonblocking($socket); connect($socket, pack_sockaddr_in(1 + int rand 65535, pack('C4', 10, map { int rand 256 } 1 .. 3))); push @tried, $socket }
    },
    lookups => sub {
        # Names that have addresses, about as many as the service answers.
        our $out; our $number;
        if (!$out) { open(my $file, '<', '/etc/resolv.conf'); my ($server) = do { local $/; <$file> } =~ /nameserver\s+(\S+)/; socket($out, AF_INET, SOCK_DGRAM, 0); connect($out, pack_sockaddr_in(53, inet_aton($server))) }
        for (1 .. 20) { my $label = 'n' . $$ . 'x' . int(rand 1e9); $number++; send($out, pack('n6', $number % 65536, 0x100, 1, 0, 0, 0) . chr(length $label) . $label . "\x06learnt\x07example\0\0\1\0\1", 0) }
        select undef, undef, undef, 0.1;
    },
    questions => sub {
        our $out; our $number;
        if (!$out) { open(my $file, '<', '/etc/resolv.conf'); my ($server) = do { local $/; <$file> } =~ /nameserver\s+(\S+)/; socket($out, AF_INET, SOCK_DGRAM, 0); connect($out, pack_sockaddr_in(53, inet_aton($server))) }
        for (1 .. 100) { my $label = 'n' . $$ . 'x' . $number++; send($out, pack('n6', $number % 65536, 0x100, 1, 0, 0, 0) . chr(length $label) . $label . "\x07invalid\0\0\1\0\1", 0) }
    },
);
repeat_in_processes($processes, $work{$kind});
