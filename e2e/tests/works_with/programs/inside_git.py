"""git inside a sandbox: a repository that is cloned over its own protocol, changed, pushed, and checked."""

from inside import passes, sandbox

PREPARE = """
set -e
git config --global user.name Clerk
git config --global user.email clerk@example.com
git config --global init.defaultBranch main
git init -q --bare /srv/notes.git
touch /srv/notes.git/git-daemon-export-ok
"""
CHANGE = """
set -e
git clone -q git://127.0.0.1/notes.git work
cd work
for n in $(seq 200); do echo $n >file-$n; done
git add . && git commit -qm "Add files"
git push -q origin HEAD:main
git gc -q
git fsck --strict
git clone -q git://127.0.0.1/notes.git copy
ls copy | wc -l
"""

with sandbox() as created:
    passes(created, PREPARE)
    server = created.start("exec git daemon --reuseaddr --base-path=/srv --enable=receive-pack --listen=127.0.0.1")
    passes(created, "until git ls-remote git://127.0.0.1/notes.git; do sleep 0.1; done 2>/dev/null")
    assert passes(created, CHANGE, cwd="/tmp").split()[-1] == "200"
    server.cancel()
print("ok", flush=True)
