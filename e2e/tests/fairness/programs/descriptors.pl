# Kernel objects with a descriptor, as many as one process may have open, in several processes.
my ($kind, $processes, $most) = @ARGV;
my @files;
if ($kind eq 'watch') { mkdir '/workspace/watched'; for (1 .. 20000) { push @files, "/workspace/watched/$_"; open(my $file, '>', $files[-1]) or last } }
my %make = (
    pty => sub { my $fd = POSIX::open('/dev/ptmx', O_RDWR); defined $fd },
    inotify => sub { call('inotify_init1', 0) >= 0 },
    eventfd => sub { call('eventfd2', 1, 0) >= 0 },
    memfd => sub { my $name = 'x'; call('memfd_create', $name, 0) >= 0 },
    meminfo => sub { defined POSIX::open('/proc/meminfo', O_RDONLY) },
    file => sub { defined POSIX::open('/etc/passwd', O_RDONLY) },
    epoll => sub { call('epoll_create1', 0) >= 0 },
    timerfd => sub { call('timerfd_create', 1, 0) >= 0 },
    socket => sub { socket(my $socket, AF_INET, SOCK_DGRAM, 0) or return 0; push @held, $socket; 1 },
    netlink => sub {
        socket(my $socket, 16, SOCK_RAW, 0) or return 0; bind($socket, pack('SSLL', 16, 0, 0, 0)) or return 0;
        fcntl($socket, F_SETFL, O_NONBLOCK); my $request = pack('LSSLL', 60016, 4095, 5, 1, 0) . 'x' x 60000;
        for (1 .. 8) { syswrite($socket, $request) or last } push @held, $socket; 1
    },
    pipe => sub { pipe(my $read, my $write) or return 0; push @held, $read, $write; fcntl($write, 1031, 1 << 20); 1 },
);
my ($taken, $started) = in_processes($processes, 3, sub {
    my $own = 0;
    if ($kind eq 'watch') {
        my $fd = call('inotify_init1', 0); return 0 if $fd < 0;
        for my $file (@files) { call('inotify_add_watch', $fd, $file, 2) >= 0 or last; $own++ }
        return $own;
    }
    if ($kind eq 'interest') {
        # Each epoll instance watches the same descriptors.
        my @ends; for (1 .. 2000) { my $fd = call('eventfd2', 0, 0); last if $fd < 0; push @ends, $fd }
        EPOLL: while ($own < $most && time < $deadline) {
            my $epoll = call('epoll_create1', 0); last if $epoll < 0;
            for my $fd (@ends) { call('epoll_ctl', $epoll, 1, $fd, pack('LQ', 1, 0)) == 0 or last EPOLL; $own++ }
        }
        return $own;
    }
    while ($own < $most && time < $deadline) { $make{$kind}->() or last; $own++ }
    return $own;
});
begun("$taken in $started processes");
# Whatever is freed is taken as well.
if ($make{$kind}) { while (1) { select undef, undef, undef, 0.01; $make{$kind}->() } }
hold();
