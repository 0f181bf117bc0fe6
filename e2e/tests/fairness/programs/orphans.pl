# Connections whose sending end is closed while the other does not read: their memory belongs to no process.
my ($processes) = @ARGV;
my $taken = in_processes($processes, 3, sub {
    my ($number) = @_;
    my $address = pack_sockaddr_in(10000 + $number, inet_aton('127.0.0.1'));
    socket(my $listener, AF_INET, SOCK_STREAM, 0) or return 0;
    setsockopt($listener, SOL_SOCKET, SO_RCVBUF, pack('l', 2048));
    bind($listener, $address) or return 0;
    listen($listener, 64);
    my ($own, $piece) = (0, "x" x 65536);
    while ($own < 12000 && time < $deadline) {
        socket(my $socket, AF_INET, SOCK_STREAM, 0) or last;
        setsockopt($socket, SOL_SOCKET, SO_SNDBUF, pack('l', 4096));
        connect($socket, $address) or last;
        accept(my $accepted, $listener) or last;
        nonblocking($socket);
        1 while syswrite($socket, $piece);
        close $socket; push @held, $accepted; $own++;
    }
    return $own;
});
begun("$taken orphans");
hold();
