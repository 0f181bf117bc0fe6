# The victim's web server: a process for each connection.
my $page = 'p' x (2 << 20);
$SIG{CHLD} = 'IGNORE';
socket(my $listener, AF_INET, SOCK_STREAM, 0) or die "socket: $!";
setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, pack('l', 1));
bind($listener, pack_sockaddr_in(8080, inet_aton('127.0.0.1'))) or die "bind: $!";
listen($listener, 128);
while (1) {
    accept(my $client, $listener) or next;
    my $child = fork;
    if (!defined $child || $child) { close $client; next }
    my $request = '';
    while ($request !~ /\r\n\r\n/) { sysread($client, $request, 4096, length $request) or POSIX::_exit(1) }
    my $response = "HTTP/1.1 200 OK\r\nContent-Length: " . length($page) . "\r\nConnection: close\r\n\r\n$page";
    my $at = 0;
    while ($at < length $response) { $at += syswrite($client, $response, length($response) - $at, $at) // POSIX::_exit(1) }
    POSIX::_exit(0);
}
