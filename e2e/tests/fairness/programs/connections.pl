# Connections to one address outside, held open without a request.
my ($host, $most) = @ARGV;
my $address = pack_sockaddr_in(80, inet_aton($host));
my $connections = 0;
while ($connections < $most) {
    socket(my $socket, AF_INET, SOCK_STREAM, 0) or last;
    nonblocking($socket);
    connect($socket, $address) or $!{EINPROGRESS} or last;
    push @held, $socket; $connections++;
}
begun("$connections connections, last error $!");
while (1) {
    select undef, undef, undef, 0.01;
    my $at = int rand @held; next if !@held;
    socket(my $socket, AF_INET, SOCK_STREAM, 0) or next;
    nonblocking($socket); connect($socket, $address); $held[$at] = $socket;
}
