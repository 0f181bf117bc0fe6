# Loopback connections that are accepted when their buffers are full: the kernel charges them beyond every limit.
my ($rounds) = @ARGV;
my $address = pack_sockaddr_in(7778, inet_aton('127.0.0.1'));
socket(my $listener, AF_INET, SOCK_STREAM, 0) or die "socket: $!";
bind($listener, $address) or die "bind: $!";
listen($listener, 4096);
my ($connections, $piece) = (0, 'x' x 65536);
for my $round (1 .. $rounds) {
    for (1 .. 400) {
        socket(my $socket, AF_INET, SOCK_STREAM, 0) or last;
        nonblocking($socket); connect($socket, $address);
        for (1 .. 4) { syswrite($socket, $piece) or last }
        push @held, $socket;
    }
    for (1 .. 400) { accept(my $accepted, $listener) or last; push @held, $accepted; $connections++ }
    begun("$connections connections and more") if $round == 1;
}
hold();
