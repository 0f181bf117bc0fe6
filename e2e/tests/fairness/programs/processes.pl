# Processes, or a fork bomb.
my ($kind) = @ARGV;
if ($kind eq 'bomb') {
    begun('a fork bomb');
    while (1) { my $child = fork; select undef, undef, undef, 0.001 if !defined $child }
}
my $started = 0;
while ($started < 5000) { my $child = fork; last if !defined $child; hold() if !$child; $started++ }
begun("$started processes");
# Whatever ends is started again.
while (1) { select undef, undef, undef, 0.02; my $child = fork; hold() if defined $child && !$child }
