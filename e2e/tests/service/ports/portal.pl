# A server in a sandbox for the tests of ports: a process per connection; each path selects a valid or invalid behaviour.
use strict;
use warnings;
use IO::Socket::INET;
use POSIX ();

$SIG{CHLD} = 'IGNORE';
$SIG{PIPE} = 'DEFAULT';
my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $ARGV[0], Listen => 512, ReuseAddr => 1) or die "$!";
while (1) {
    my $client = $socket->accept or next;
    if (fork) { close $client; next }
    close $socket;
    serve($client);
    POSIX::_exit(0);
}

sub put { my ($c, $bytes) = @_; my $at = 0; while ($at < length $bytes) { my $n = syswrite($c, $bytes, length($bytes) - $at, $at); return 0 unless $n; $at += $n } return 1 }
sub whole { my ($c, $body, $more) = @_; put($c, "HTTP/1.1 200 OK\r\nContent-Length: " . length($body) . "\r\n" . ($more // '') . "\r\n$body") }

sub serve {
    my ($c) = @_;
    my $got = '';
    while ($got !~ /\r\n\r\n/) { sysread($c, $got, 65536, length $got) or return }
    my ($head, $rest) = split /\r\n\r\n/, $got, 2;
    my ($method, $path) = $head =~ /^(\S+) (\S+)/;
    my ($length) = $head =~ /^content-length: *(\d+)/mi;
    my $chunked = $head =~ /^transfer-encoding: *chunked/mi;
    my ($what, $arg) = $path =~ m{^/(\w*)\??(.*)};
    if ($what eq 'head') { return whole($c, $head, "Content-Type: text/plain\r\nX-Inner: 1\r\nConnection: close, X-Inner\r\n") }
    if ($what eq 'cookies') { return whole($c, 'set', "Set-Cookie: own=1; Path=/\r\nSet-Cookie: wide=1; Domain=sandboxes.localhost\r\nSet-Cookie: __Host-sandbox-token=spt_x; Path=/; Secure\r\n") }
    if ($what eq 'status') { return put($c, "HTTP/1.1 $arg Own Words\r\nContent-Length: 4\r\nX-Own: yes\r\n\r\nbody") }
    if ($what eq 'count') {
        my $count = length $rest;
        if ($chunked) {
            my $tail = $rest;
            while ($tail !~ /0\r\n\r\n$/) { my $n = sysread($c, my $part, 65536) or return; $count += $n; $tail = substr($tail . $part, -16) }
        } else { while ($count < ($length // 0)) { my $n = sysread($c, my $part, 65536) or return; $count += $n } }
        return whole($c, "$count");
    }
    if ($what eq 'echo') {
        put($c, "HTTP/1.1 200 OK\r\n" . ($chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "Content-Length: $length\r\n\r\n"));
        my ($seen, $tail) = (length $rest, $rest);
        put($c, $rest) if length $rest;
        while ($chunked ? $tail !~ /0\r\n\r\n$/ : $seen < $length) {
            my $n = sysread($c, my $part, 65536) or return;
            $seen += $n;
            $tail = substr($tail . $part, -16);
            put($c, $part) or return;
        }
        return;
    }
    if ($what eq 'big') {
        my $piece = join '', map { chr($_ % 251) } 0 .. 251 * 260 - 1;
        put($c, "HTTP/1.1 200 OK\r\nContent-Length: $arg\r\n\r\n");
        while ($arg > 0) { my $n = $arg < length $piece ? $arg : length $piece; put($c, substr($piece, 0, $n)) or return; $arg -= $n }
        return;
    }
    if ($what eq 'sse') {
        put($c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (my $n = 0; ; $n++) { put($c, sprintf("%x\r\ndata: %d\n\n\r\n", length("data: $n\n\n"), $n)) or return; select(undef, undef, undef, 0.05) }
    }
    if ($what eq 'ws') {
        put($c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello");
        put($c, $rest) if length $rest;
        while (sysread($c, my $part, 65536)) { put($c, $part) or return }
        return put($c, 'bye');
    }
    if ($what eq 'silent') { sleep 3600 }
    if ($what eq 'endless') { put($c, "HTTP/1.1 200 OK\r\n"); while (put($c, 'x-a: ' . 'a' x 1000 . "\r\n")) { } return }
    if ($what eq 'interim') { while (put($c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" x 100)) { } return }
    if ($what eq 'stall') { put($c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"); sleep 3600 }
    my %bad = (
        garbage => "\x00\x01\x02 this is no HTTP\r\n\r\n",
        lengths => "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        negative => "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabcd",
        coding => "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        protocol => "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nraw",
        nothing => '',
        half => "HTTP/1.1 200 OK\r\nContent-Le",
        header => "HTTP/1.1 200 OK\r\nBad Header: x\r\nContent-Length: 1\r\n\r\na",
        both => "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        chunk => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\nZZ\r\n",
        short => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabcd",
        second => "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    );
    return put($c, $bad{$arg}) if $what eq 'bad';
    return whole($c, "it is port $ARGV[0]");
}
