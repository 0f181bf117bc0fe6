# Socket filters: the kernel compiles each into memory that only net.core.bpf_jit_limit bounds, for the whole host.
my ($option, $most) = @ARGV;
my ($taken, $refused, $end) = (0, '', time + 20);
# A division is compiled to the most bytes. Smaller filters fill what the larger ones leave.
my @programs = map {
    my $filter = pack('SCCL', 0x34, 0, 0, 3) x ($_ - 1) . pack('SCCL', 0x06, 0, 0, 0xffffffff);
    [$filter, pack('Sx6P', $_, $filter)]
} 4096, 1024, 256, 64, 16, 4;
sub attach {
    my ($program) = @_;
    socket(my $socket, AF_INET, SOCK_DGRAM, 0) or do { $refused = "socket: $!"; return 0 };
    setsockopt($socket, SOL_SOCKET, 15, pack('l', 1)) if $option == 51;
    setsockopt($socket, SOL_SOCKET, $option, $program->[1]) or do { $refused = "$!"; return 0 };
    push @held, $socket; $taken++;
    return 1;
}
for my $program (@programs) { 1 while @held < $most && time < $end && attach($program) }
begun("$taken filters ($refused)");
# Whatever another sandbox frees is taken as well.
while (@held < $most) { select undef, undef, undef, 0.005; 1 while @held < $most && attach($programs[-1]) }
hold();
