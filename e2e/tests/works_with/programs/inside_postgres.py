"""PostgreSQL inside a sandbox: a database that is paused, resumed, and killed keeps its rows; a fork has its own."""

from inside import passes, sandbox

START = """
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
ln -sf "$bin"/* /usr/local/bin/
install -d -o postgres /data /run/postgresql
cd /data
su postgres -c "initdb -D /data/cluster -A trust >/dev/null && pg_ctl -D /data/cluster -w -l /data/log start"
"""


def query(sandbox, text):
    return passes(sandbox, ["psql", "-U", "postgres", "-h", "127.0.0.1", "-At", "-c", text], cwd="/tmp").strip()


with sandbox() as created:
    passes(created, START)
    query(created, "CREATE TABLE numbers AS SELECT n FROM generate_series(1, 100000) AS n")
    query(created, "CREATE INDEX ON numbers (n)")
    created.pause()
    created.resume()
    assert query(created, "SELECT sum(n) FROM numbers WHERE n <= 1000") == "500500"
    # As after a crash, the next start recovers from the log.
    query(created, "INSERT INTO numbers VALUES (-1)")
    passes(created, "pkill -9 -u postgres; while pgrep -u postgres; do sleep 0.1; done >/dev/null", cwd="/tmp")
    passes(created, 'cd /data && su postgres -c "pg_ctl -D /data/cluster -w -l /data/log start"')
    assert query(created, "SELECT count(*), min(n) FROM numbers") == "100001|-1"
    [fork] = created.fork(1)
    with fork:
        passes(fork, 'cd /data && rm -f cluster/postmaster.pid && su postgres -c "pg_ctl -D /data/cluster -w -l /data/log start"')
        query(fork, "DELETE FROM numbers")
        assert query(fork, "SELECT count(*) FROM numbers") == "0"
    assert query(created, "SELECT count(*) FROM numbers") == "100001"
print("ok", flush=True)
