# Descriptors of sockets in flight in the queues of these sockets: cycles that only the kernel's collector finds.
my $taken = in_processes(8, 3, sub {
    my $own = 0;
    while ($own < 4000) {
        socketpair(my $from, my $to, AF_UNIX, SOCK_DGRAM, 0) or last;
        my $data = 'x';
        my $control = pack('Qllll', 24, SOL_SOCKET, 1, fileno $from, fileno $to);
        my $vector = pack('PQ', $data, 1);
        my $message = pack('QLx4PQPQlx4', 0, 0, $vector, 1, $control, 24, 0);
        call('sendmsg', fileno $from, $message, 0) > 0 or last;
        close $from; close $to; $own += 2;
    }
    return $own;
});
begun("$taken descriptors in flight");
repeat_in_processes(2, sub { socketpair(my $from, my $to, AF_UNIX, SOCK_DGRAM, 0) });
