# Loopback connections that nobody reads: send and receive buffers fill.
my ($family, $most, $buffer, $interval) = @ARGV;
my ($domain, $address) = $family eq '6' ? (AF_INET6, pack_sockaddr_in6(7777, inet_pton(AF_INET6, '::1'))) : (AF_INET, pack_sockaddr_in(7777, inet_aton('127.0.0.1')));
socket(my $listener, $domain, SOCK_STREAM, 0) or die "socket: $!";
setsockopt($listener, SOL_SOCKET, SO_RCVBUF, pack('l', $buffer)) if $buffer;
bind($listener, $address) or die "bind: $!";
listen($listener, 4096);
our @accepted;
my ($connections, $bytes, $piece) = (0, 0, 'x' x 262144);
sub fill { for my $socket (@held) { for (1 .. 64) { my $sent = syswrite($socket, $piece) or last; $bytes += $sent } } }
while ($connections < $most) {
    socket(my $socket, $domain, SOCK_STREAM, 0) or last;
    setsockopt($socket, SOL_SOCKET, SO_SNDBUF, pack('l', $buffer)) if $buffer;
    connect($socket, $address) or last;
    accept(my $accepted, $listener) or last;
    nonblocking($socket);
    push @held, $socket; push @accepted, $accepted; $connections++;
    if ($connections % 64 == 0) { fill() }
}
fill() for 1 .. 5;
begun(sprintf '%d connections, %d MB', $connections, $bytes >> 20);
while (1) { fill(); select undef, undef, undef, $interval // 0.02 }
