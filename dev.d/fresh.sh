# shellcheck shell=bash
# Tests the README's commands in a minimal Debian root file system with only cargo, in its own mount, process and network
# namespaces, with a clone of the last commit. Sourced by ./dev; provides cmd_fresh.

# Addresses of the link between the host and the root, from the range for tests (RFC 5737).
FRESH_HOST=203.0.113.253
FRESH_GUEST=203.0.113.254

# cmd_fresh [SUITE] [COMMAND...]: without COMMAND, runs ./dev run and one request. COMMAND is a command of ./dev, such as
# `test -p net`.
cmd_fresh() {
  need_root fresh
  setup fresh
  need_cargo
  local suite=${1:-bookworm}
  [ $# -eq 0 ] || shift
  # shellcheck disable=SC2153 # ROOT is set by ./dev
  local root=$ROOT/target/fresh/$suite status=0
  [ -z "$(git status --porcelain)" ] || say "fresh: uncommitted changes are not part of the clone"
  fresh_clean "$suite" "$root"
  fresh_root "$suite" "$root"
  fresh_network "$suite" "$root"
  # --kill-child: when unshare ends, the PID namespace ends with all processes that ./dev left in it.
  # Not `ip netns exec`, which hides /sys/fs/cgroup below a new /sys.
  nsenter --net="/run/netns/$(fresh_name "$suite")" unshare --mount --pid --fork --kill-child --propagation private \
    bash "$ROOT/dev.d/fresh-inside.sh" "$root" "$(rustc --print sysroot)" "$@" || status=$?
  fresh_clean "$suite" "$root"
  [ "$status" -eq 0 ] || die "fresh: $suite failed"
  say "fresh: $suite passed"
}

fresh_name() { printf 'sandboxd-fresh-%s' "$1"; }

# fresh_clean SUITE ROOT: removes leftovers of an earlier or interrupted run.
fresh_clean() {
  local name cgroup
  name=$(fresh_name "$1")
  if grep -q "^$name\b" <<<"$(ip netns list)"; then ip netns del "$name"; fi
  nft delete table ip "$name" 2>/dev/null || true
  # The processes have ended, but their cgroups remain.
  if [ -s "$2.cgroups" ]; then
    while read -r cgroup; do rmdir "$cgroup" 2>/dev/null || true; done <"$2.cgroups"
  fi
  if [ -s "$2.uplink" ]; then sysctl -qw "net.ipv4.conf.$(cat "$2.uplink").forwarding=0"; fi
  rm -rf --one-file-system "$2" "$2.cgroups" "$2.uplink"
}

fresh_root() {
  local suite=$1 root=$2 mirror file
  # Use the mirror, proxy and additional certificate authorities of this host.
  # shellcheck disable=SC2016 # apt-get expands it
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' | grep -v security | sed -n 1p)
  say "fresh: building a minimal $suite in ${root#"$ROOT/"}"
  mkdir -p "$(dirname "$root")"
  mmdebstrap --quiet --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} ||
    die "fresh: mmdebstrap could not build $suite"
  apt-config dump | grep -E '^Acquire::(http|https)' >"$root/etc/apt/apt.conf.d/99host" || true
  # The root is removed afterwards, so dpkg need not sync every file.
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
  for file in /usr/local/share/ca-certificates/*.crt; do
    if [ -e "$file" ]; then install -Dm 644 -t "$root/usr/local/share/ca-certificates" "$file"; fi
  done
  # Another network namespace cannot reach a resolver on the host's loopback, so use its upstream servers.
  file=/etc/resolv.conf
  if [ -e /run/systemd/resolve/resolv.conf ]; then file=/run/systemd/resolve/resolv.conf; fi
  cp -L "$file" "$root/etc/resolv.conf"
  # Debian's installer writes this file; mmdebstrap does not.
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
  git clone --quiet --no-local "$ROOT" "$root/src/sandboxd"
  mkdir -p "$root/opt/rust"
}

fresh_network() {
  local name uplink
  name=$(fresh_name "$1")
  ip netns add "$name"
  ip link add sbfresh type veth peer name eth0 netns "$name"
  ip addr add "$FRESH_HOST/30" dev sbfresh
  ip link set sbfresh up
  ip -n "$name" link set lo up
  ip -n "$name" addr add "$FRESH_GUEST/30" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" route add default via "$FRESH_HOST"
  # Both directions of a connection are forwarded only if both links forward.
  uplink=$(ip route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | sed -n 1p)
  if [ "$(sysctl -n "net.ipv4.conf.$uplink.forwarding")" = 0 ]; then
    printf '%s\n' "$uplink" >"$2.uplink"
    sysctl -qw "net.ipv4.conf.$uplink.forwarding=1"
  fi
  sysctl -qw net.ipv4.conf.sbfresh.forwarding=1
  nft -f - <<NFT
table ip $name {
  chain postrouting {
    type nat hook postrouting priority srcnat
    ip saddr $FRESH_GUEST masquerade
  }
}
NFT
}
