# Objects that are charged to a user: POSIX message queues, queued signals, timers, locks, System V objects, contexts of AIO.
my ($kind, $processes) = @ARGV;
my %take = (
    mqueue => sub { my ($number) = @_; my $own = 0; while ($own < 2000 && time < $deadline) { my $name = "q$number-$own"; call('mq_open', $name, O_RDWR | O_CREAT, 0600, 0) >= 0 or last; $own++ } $own },
    signal => sub {
        my $own = 0;
        POSIX::sigprocmask(POSIX::SIG_BLOCK(), POSIX::SigSet->new(40));
        while ($own < 200000 && time < $deadline) { my $info = pack('lllx4llQ', 40, 0, -1, $$, 0, 0) . "\0" x 96; call('rt_sigqueueinfo', $$ + 0, 40, $info) == 0 or last; $own++ }
        $own;
    },
    timer => sub { my $own = 0; while ($own < 200000 && time < $deadline) { my $id = pack('l', 0); call('timer_create', 1, 0, $id) == 0 or last; $own++ } $own },
    lock => sub { my ($number) = @_; my $own = 0; open(my $file, '+>', "/workspace/locked$number") or return 0; push @held, $file;
        while ($own < 200000 && time < $deadline) { my $lock = pack('ssx4qqlx4', F_WRLCK, 0, 2 * $own, 1, 0); fcntl($file, F_SETLK, $lock) or last; $own++ } $own },
    shm => sub { my $own = 0; while ($own < 4096 && time < $deadline) { my $id = shmget(0, 4096, 0600); last if !defined $id; $own++ } $own },
    sem => sub { my $own = 0; while ($own < 32000 && time < $deadline) { my $id = semget(0, 250, 0600); last if !defined $id; $own++ } $own },
    msg => sub { my $own = 0; while ($own < 32000 && time < $deadline) { my $id = msgget(0, 0600); last if !defined $id; msgsnd($id, pack('l! a*', 1, 'x' x 8000), 04000) for 1 .. 2; $own++ } $own },
    aio => sub { my $own = 0; for my $events (65536, 4096, 256, 16, 1) { while ($own < 1 << 20 && time < $deadline) { my $context = pack('Q', 0); call('io_setup', $events, $context) == 0 or last; $own += $events } } $own },
    mlock => sub { my $own = 0; while ($own < 256 && time < $deadline) { my $bytes = 'x' x (1 << 20); call('mlock', $bytes, length $bytes) == 0 or last; push @held, \$bytes; $own++ } $own },
);
my ($taken, $started) = in_processes($processes, 3, $take{$kind});
begun("$taken in $started processes");
hold();
