# Packets to many neighbours that do not exist.
my ($link) = grep { $_ ne 'lo' } map { m{([^/]+)$} } glob '/sys/class/net/*';
my $index = 0;
if ($link && open(my $file, '<', "/sys/class/net/$link/ifindex")) { $index = <$file> + 0 }
my ($sent, $number) = (0, 0);
socket(my $six, AF_INET6, SOCK_DGRAM, 0);
for $number (1 .. 20000) {
    send($six, 'x', 0, pack_sockaddr_in6(9, inet_pton(AF_INET6, sprintf 'fe80::%x', $number + 16), $index)) and $sent++ if $six && $index;
}
begun("$sent packets to neighbours, last error $!");
while ($six && $index) {
    $number = ($number + 1) % 65000;
    send($six, 'x', 0, pack_sockaddr_in6(9, inet_pton(AF_INET6, sprintf 'fe80::%x', $number + 16), $index));
    select undef, undef, undef, 0.0005;
}
hold();
