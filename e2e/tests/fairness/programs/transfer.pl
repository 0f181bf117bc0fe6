# Sends megabytes over one loopback connection to a reader, and prints megabytes per second.
use Time::HiRes ();
my ($megabytes) = @ARGV;
socket(my $listener, AF_INET, SOCK_STREAM, 0) or die "socket: $!";
bind($listener, pack_sockaddr_in(0, inet_aton('127.0.0.1'))) or die "bind: $!";
listen($listener, 1);
my $reader = fork // die "fork: $!";
if (!$reader) {
    socket(my $socket, AF_INET, SOCK_STREAM, 0) or die "socket: $!";
    connect($socket, getsockname $listener) or die "connect: $!";
    my $bytes;
    1 while sysread($socket, $bytes, 1 << 20);
    POSIX::_exit(0);
}
accept(my $writer, $listener) or die "accept: $!";
my ($piece, $begun) = ('x' x (1 << 20), Time::HiRes::time());
for (1 .. $megabytes) {
    my $at = 0;
    while ($at < length $piece) { $at += syswrite($writer, $piece, length($piece) - $at, $at) // die "write: $!" }
}
close $writer;
waitpid $reader, 0;
printf "%.1f\n", $megabytes / (Time::HiRes::time() - $begun);
