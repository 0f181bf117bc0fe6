# The victim takes a little of everything that one sandbox may have taken from all others. Prints what it was refused.
# Programs of gVisor's kernel lack some of it: what is missing without an attack, the argument lists.
my %missing = map { $_ => 1 } split /,/, shift(@ARGV) // '';
my @refused;
sub attempt { my ($name, $work) = @_; return if $missing{$name}; local $! = 0; my $done = eval { $work->() }; push @refused, "$name: " . ($! || $@ || 'failed') if !$done }
attempt('pty', sub { defined POSIX::open('/dev/ptmx', O_RDWR) });
attempt('inotify', sub { my $fd = call('inotify_init1', 0); my $path = '/workspace'; $fd >= 0 && call('inotify_add_watch', $fd, $path, 2) >= 0 });
attempt('mqueue', sub { my $name = "probe$$"; my $fd = call('mq_open', $name, O_RDWR | O_CREAT, 0600, 0); $fd >= 0 && call('mq_unlink', $name) == 0 });
attempt('signal', sub { POSIX::sigprocmask(POSIX::SIG_BLOCK(), POSIX::SigSet->new(40)); my $info = pack('lllx4llQ', 40, 0, -1, $$, 0, 0) . "\0" x 96; call('rt_sigqueueinfo', $$ + 0, 40, $info) == 0 });
attempt('timer', sub { my $id = pack('l', 0); call('timer_create', 1, 0, $id) == 0 });
attempt('epoll', sub { my ($epoll, $fd) = (call('epoll_create1', 0), call('eventfd2', 0, 0)); $epoll >= 0 && $fd >= 0 && call('epoll_ctl', $epoll, 1, $fd, pack('LQ', 1, 0)) == 0 });
attempt('memfd', sub { my $name = 'probe'; call('memfd_create', $name, 0) >= 0 });
attempt('pipe', sub { my ($read, $write); pipe($read, $write) && fcntl($write, 1031, 1 << 18) });
attempt('file', sub { open(my $file, '<', '/etc/passwd') });
attempt('lock', sub { my $file; open($file, '>', '/workspace/probe') && flock($file, LOCK_EX) });
attempt('fork', sub { my $child = fork; POSIX::_exit(0) if defined $child && !$child; defined $child && waitpid($child, 0) == $child });
attempt('mlock', sub { my $bytes = 'x' x 65536; call('mlock', $bytes, length $bytes) == 0 });
attempt('shm', sub { my $id = shmget(0, 4096, 0600); defined $id && shmctl($id, 0, 0) });
attempt('msg', sub { my $id = msgget(0, 0600); defined $id && msgctl($id, 0, 0) });
attempt('aio', sub { my $context = pack('Q', 0); call('io_setup', 1, $context) == 0 });
attempt('tcp', sub { my ($listener, $socket); socket($listener, AF_INET, SOCK_STREAM, 0) && bind($listener, pack_sockaddr_in(0, inet_aton('127.0.0.1'))) && listen($listener, 1) && socket($socket, AF_INET, SOCK_STREAM, 0) && connect($socket, getsockname $listener) && syswrite($socket, 'x' x 65536) });
attempt('refused', sub { my $socket; socket($socket, AF_INET, SOCK_STREAM, 0); nonblocking($socket); connect($socket, pack_sockaddr_in(9, inet_aton('10.99.99.99'))); my $ready = ''; vec($ready, fileno($socket), 1) = 1; select(undef, $ready, undef, 3) == 1 && unpack('l', getsockopt($socket, SOL_SOCKET, SO_ERROR)) == POSIX::ECONNREFUSED() });
attempt('unix', sub { my ($from, $to); socketpair($from, $to, AF_UNIX, SOCK_STREAM, 0) && syswrite($from, 'x' x 4096) });
attempt('filter', sub { my $child = fork; return 0 if !defined $child; if (!$child) { my $filter = pack('SCCL', 6, 0, 0, 0x7fff0000) x 64; my $program = pack('Sx6P', 64, $filter); call('prctl', 38, 1, 0, 0, 0); POSIX::_exit(call('prctl', 22, 2, $program, 0, 0) == 0 ? 0 : 1) } waitpid $child, 0; $? == 0 });
print @refused ? join('; ', @refused) : 'ok', "\n";
