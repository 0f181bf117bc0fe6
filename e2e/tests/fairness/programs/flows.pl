# One packet to each of many addresses and ports: entries of the connection table.
my ($prefix, $most) = @ARGV;
my ($sent, $refused) = (0, 0);
for my $port (20000 .. 20000 + $most / 200) {
    socket(my $out, AF_INET, SOCK_DGRAM, 0);
    for my $host (1 .. 200) { send($out, 'x', 0, pack_sockaddr_in($port, inet_aton("$prefix.$host"))) ? $sent++ : $refused++ }
}
begun("$sent flows");
my $port = 1024;
while (1) {
    socket(my $out, AF_INET, SOCK_DGRAM, 0);
    $port = 1024 + ($port + 1) % 60000;
    send($out, 'x', 0, pack_sockaddr_in($port, inet_aton("$prefix.$_"))) for 1 .. 200;
    select undef, undef, undef, 0.001;
}
