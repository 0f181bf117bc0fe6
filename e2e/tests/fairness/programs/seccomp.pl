# Nested filters of system calls, which are compiled like socket filters.
my $filter = pack('SCCL', 0x34, 0, 0, 3) x 4095 . pack('SCCL', 0x06, 0, 0, 0x7fff0000);
my $program = pack('Sx6P', 4096, $filter);
my ($taken, $started) = in_processes(900, 3, sub {
    my $own = 0;
    call('prctl', 38, 1, 0, 0, 0);
    for (1 .. 7) { call('prctl', 22, 2, $program, 0, 0) == 0 or last; $own++ }
    return $own;
});
begun("$taken filters of $started processes");
hold();
