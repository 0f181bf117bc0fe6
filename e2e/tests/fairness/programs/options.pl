# Memory of options of sockets, such as keys of TCP.
my ($most) = @ARGV;
my ($taken, $refused) = (0, '');
while (@held < $most && !$refused) {
    socket(my $socket, AF_INET, SOCK_STREAM, 0) or last;
    for my $key (1 .. 400) {
        my $option = pack('SnCCCCx120', AF_INET, 0, 10, 1, $key >> 8, $key & 255) . pack('CCSl', 0, 0, 4, 0) . 'k' x 80;
        setsockopt($socket, 6, 14, $option) or do { $refused = "$!" if $key == 1; last };
        $taken++;
    }
    push @held, $socket;
}
begun(sprintf '%d options of %d sockets (%s)', $taken, scalar @held, $refused);
hold();
