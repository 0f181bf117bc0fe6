#!/usr/bin/env bash
# The part of ./dev fresh that runs in the new namespaces: mounts the file systems of a booted machine, enters the root and
# runs the README's commands there.
#
#   fresh-inside.sh ROOT RUST_SYSROOT [COMMAND...]
set -euo pipefail

root=$1 sysroot=$2
shift 2

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
mount --bind -o ro "$sysroot" "$root/opt/rust"

# Environment variables of this machine that name a proxy or certificate authorities.
settings=()
while IFS= read -r setting; do settings+=("$setting"); done < <(env | grep -iE '^([a-z]+_proxy|[A-Z0-9_]*(CA_BUNDLE|CA_CERTS|_CERT|CERT_FILE|CAINFO))=')

cat >"$root/try-run" <<'SCRIPT'
set -euo pipefail
cd /src/sandboxd
started=$SECONDS
./dev run >/run.log 2>&1 &
server=$!
while ! grep -q 'sandboxd is ready' /run.log; do
  kill -0 $server 2>/dev/null || { tail -n 60 /run.log; echo 'fresh: ./dev run ended'; exit 1; }
  sleep 1
done
echo "fresh: ready after $((SECONDS - started)) s"
sleep 1
# The commands that ./dev run prints for pasting. Log lines, which are also printed, begin with the time.
sed -e '1,/into a shell:$/d' -e '/^[0-9-]*T[0-9:.]*Z /d' /run.log >/commands
answer=$(bash -euo pipefail /commands)
echo "fresh: first response after $((SECONDS - started)) s: $answer"
grep -E '^dev: |stand-in|Finished' /run.log || true
case $answer in *'"exitCode":0'*) ;; *) cat /run.log; exit 1 ;; esac
# Built in the background.
while ! [ -x target/bin/sbx ]; do sleep 1; done
echo "fresh: sbx is built after $((SECONDS - started)) s"
target/bin/sbx ls -q | xargs -r target/bin/sbx rm
kill $server
wait $server || true
SCRIPT

# Not chroot: in one, the kernel refuses to create user namespaces.
# shellcheck disable=SC2016 # expanded inside
enter='cd "$1" && pivot_root . mnt && cd / && /mnt/usr/bin/umount -l /mnt && shift && exec "$@"'

inside() {
  unshare --mount --propagation=private bash -euc "$enter" enter "$root" /usr/bin/env -i HOME=/root TERM=dumb \
    PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${settings[@]+"${settings[@]}"} "$@"
}

status=0
if [ $# -eq 0 ]; then inside bash /try-run || status=$?; else inside /src/sandboxd/dev "$@" || status=$?; fi
# Deepest first, so that they can be removed in this order.
find /sys/fs/cgroup -depth -type d \( -path '*/sandboxd' -o -path '*/sandboxd/*' \) -print >"$root.cgroups" 2>/dev/null || true
exit "$status"
