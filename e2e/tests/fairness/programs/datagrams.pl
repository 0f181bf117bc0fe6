# Datagrams that nobody reads, of one kind: udp4, udp6 or unix.
my ($kind, $most) = @ARGV;
my ($bytes, $sockets, $piece) = (0, 0, 'x' x 60000);
while ($sockets < $most) {
    my ($from, $to);
    if ($kind eq 'unix') { socketpair($from, $to, AF_UNIX, SOCK_DGRAM, 0) or last }
    else {
        my ($domain, $address) = $kind eq 'udp6' ? (AF_INET6, pack_sockaddr_in6(0, inet_pton(AF_INET6, '::1'))) : (AF_INET, pack_sockaddr_in(0, inet_aton('127.0.0.1')));
        socket($to, $domain, SOCK_DGRAM, 0) or last;
        setsockopt($to, SOL_SOCKET, SO_RCVBUF, pack('l', 1 << 30));
        bind($to, $address) or last;
        socket($from, $domain, SOCK_DGRAM, 0) or last;
        connect($from, getsockname $to) or last;
    }
    setsockopt($from, SOL_SOCKET, SO_SNDBUF, pack('l', 1 << 30));
    nonblocking($from);
    for (1 .. 12) { my $sent = syswrite($from, $piece) or last; $bytes += $sent }
    push @held, $from, $to; $sockets++;
}
begun(sprintf '%d sockets, %d MB sent', $sockets, $bytes >> 20);
hold();
