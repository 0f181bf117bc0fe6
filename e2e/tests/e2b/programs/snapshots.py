"""Snapshots, creates from them, forks, and pauses without processes."""

import names
from e2b import Sandbox

source = Sandbox.create(timeout=300)
copies = []
try:
    source.files.write("file", "before")
    snapshot = source.create_snapshot(name="after-setup")
    assert snapshot.snapshot_id.startswith("snap_"), snapshot
    assert snapshot.names == ["after-setup"], snapshot
    source.files.write("file", "after")
    for template in [snapshot.snapshot_id, "after-setup"]:
        copy = Sandbox.create(template, timeout=300)
        copies.append(copy)
        assert copy.files.read("file") == "before"
        assert copy.commands.run("whoami").stdout.strip() == "user"
        assert copy.get_info().memory_mb == source.get_info().memory_mb

    listed = source.list_snapshots().next_items()
    assert [item.snapshot_id for item in listed] == [snapshot.snapshot_id], listed

    forks = source.fork(count=2, timeout=60)
    copies.extend(forks)
    for fork in forks:
        assert not isinstance(fork, Exception), fork
        assert fork.files.read("file") == "after"

    # A pause without processes, and a resume without those of a pause with them.
    running = source.commands.run("sleep 600", background=True)
    source.pause(keep_memory=False)
    source.connect()
    assert source.files.read("file") == "after"
    assert source.commands.run("pgrep -c sleep || true").stdout.strip() == "0"

    assert Sandbox.delete_snapshot(snapshot.snapshot_id)
    assert not Sandbox.delete_snapshot(snapshot.snapshot_id)
    assert copies[0].files.read("file") == "before"
    try:
        copies.append(Sandbox.create(snapshot.snapshot_id, timeout=60))
    except Exception as error:
        assert "not found" in str(error), error
    else:
        raise AssertionError("a deleted snapshot was used")
finally:
    for sandbox in [source, *copies]:
        if isinstance(sandbox, Sandbox):
            sandbox.kill()

names.passed()
