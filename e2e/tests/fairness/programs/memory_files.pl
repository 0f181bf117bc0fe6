# Fills the files in memory, and as many empty ones as fit.
my $bytes = 0;
for my $directory ('/dev/shm', '/dev', '/tmp') {
    open(my $file, '>', "$directory/fill") or next;
    while ($bytes < 3 << 30) { my $sent = syswrite($file, 'x' x 1048576) or last; $bytes += $sent; last if $directory eq '/tmp' && $bytes > 3 << 29 }
    for (1 .. 20000) { open(my $empty, '>', "$directory/empty$_") or last }
}
begun(sprintf '%d MB', $bytes >> 20);
hold();
