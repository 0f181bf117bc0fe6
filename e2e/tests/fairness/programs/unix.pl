# Streams between processes of the sandbox that nobody reads.
my ($most_mb) = @ARGV;
my ($bytes, $pairs, $piece) = (0, 0, 'x' x 65536);
while ($bytes < $most_mb << 20) {
    socketpair(my $from, my $to, AF_UNIX, SOCK_STREAM, 0) or last;
    setsockopt($from, SOL_SOCKET, SO_SNDBUF, pack('l', 1 << 30));
    nonblocking($from);
    while (my $sent = syswrite($from, $piece)) { $bytes += $sent }
    push @held, $from, $to; $pairs++;
}
begun(sprintf '%d pairs, %d MB', $pairs, $bytes >> 20);
hold();
