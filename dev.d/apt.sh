# shellcheck shell=bash
# Installs packages with apt. A package that is in conflict with one of the machine is unpacked below target/ instead.
# Sourced by ./dev; provides install_packages.

# Programs of unpacked packages; ./dev has it on its path.
UNPACKED=target/packages

# How long to wait for another apt, in seconds. New cloud machines run one after their first boot.
APT_WAIT=${APT_WAIT:-600}
APT_RETRY=${APT_RETRY:-5}

# apt ARGUMENTS...: runs apt-get, and waits while another process holds one of apt's locks. apt has three (package lists,
# downloads, dpkg) and its own option DPkg::Lock::Timeout covers only the last one, so we run apt-get again instead.
apt() {
  local errors=target/.apt-errors started=$SECONDS reported=-60 waited status
  mkdir -p target
  while :; do
    status=0
    # A package of the machine belongs to its user: a conflict fails.
    LC_ALL=C apt-get -q --no-remove "$@" >&2 2>"$errors" || status=$?
    if [ "$status" -eq 0 ] || ! grep -Eq 'Could not get lock|Unable to acquire|Unable to lock' "$errors"; then
      cat "$errors" >&2
      return "$status"
    fi
    waited=$((SECONDS - started))
    if [ "$waited" -ge "$APT_WAIT" ]; then
      cat "$errors" >&2
      say "another process has held apt's lock for $waited s; run ./dev again when it has ended"
      return "$status"
    fi
    if [ $((waited - reported)) -ge 30 ]; then
      reported=$waited
      say "waiting for apt's lock: $(grep -Eom 1 'held by process [0-9]+( \([^)]*\))?' "$errors" || printf 'held by another process')" \
        "($waited s of at most $APT_WAIT s)"
    fi
    sleep "$APT_RETRY"
  done
}

# Uses the caller's lists `missing` and `optional`.
install_packages() {
  if ! command -v apt-get >/dev/null; then
    die "apt-get is not installed; install these packages with your package manager: ${missing[*]-} ${optional[*]-}"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    [ ${#missing[@]} -eq 0 ] && return
    die "these packages are missing: ${missing[*]}; install them with: sudo ./dev setup"
  fi
  # An optional package that cannot be found is looked up again in every run. Refresh the lists for those only once.
  local package known=() updated=target/.apt-updated
  if [ ${#missing[@]} -gt 0 ] || ! [ -e "$updated" ]; then
    say "refreshing apt's package lists"
    apt update || say "apt-get update failed; continuing with the existing package lists"
    mkdir -p target && touch "$updated"
  fi
  for package in ${optional[@]+"${optional[@]}"}; do
    if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then known+=("$package"); else without "$package"; fi
  done
  set -- ${missing[@]+"${missing[@]}"} ${known[@]+"${known[@]}"}
  [ $# -gt 0 ] || return 0
  local conflicting=() installable=()
  if [ -n "$(removed_by "$@")" ]; then split_conflicting "$@"; set -- ${installable[@]+"${installable[@]}"}; fi
  if [ $# -gt 0 ]; then
    say "installing: $*"
    apt install -y --no-install-recommends "$@" || die "apt-get could not install: $*"
  fi
  for package in ${conflicting[@]+"${conflicting[@]}"}; do unpack "$package"; done
  stop_servers "$@"
}

# stop_servers PACKAGE...
stop_servers() {
  # The tests start these servers themselves. The services that the packages start would occupy their ports.
  local service unit
  for service in docker-registry nginx fcgiwrap; do
    case " $* " in
      *" $service "* | *" $service-light "*)
        if [ -d /run/systemd/system ]; then
          # Some packages have only one of the two.
          for unit in "$service.socket" "$service.service"; do
            systemctl disable --now "$unit" >/dev/null 2>&1 || true
          done
        fi
        ;;
    esac
  done
}

# removed_by PACKAGE...: the installed packages that apt-get would remove to install these.
removed_by() {
  LC_ALL=C apt-get -q -s install --no-install-recommends "$@" 2>/dev/null | sed -n 's/^Remv \([^ ]*\).*/\1/p'
}

# split_conflicting PACKAGE...: adds those that would remove a package to the caller's list `conflicting`, and the others to
# `installable`.
split_conflicting() {
  local package
  for package; do
    if [ -n "$(removed_by "$package")" ]; then conflicting+=("$package"); else installable+=("$package"); fi
  done
}

# unpack PACKAGE: places its programs in target/packages/bin/, for ./dev alone. The files of the package, and of those that it
# needs and the machine lacks, stay below target/.
unpack() {
  local package=$1 dir=$UNPACKED/$1 archive named program
  say "$package is in conflict with installed packages ($(removed_by "$package" | tr '\n' ' ' | sed 's/ $//')), which stay:" \
    "unpacking it into $dir/"
  rm -rf "$dir"
  mkdir -p "$dir/archives" "$UNPACKED/bin"
  LC_ALL=C apt-get -q -s install --no-install-recommends "$package" 2>/dev/null |
    sed -n 's/^Inst \([^ ]*\) \(\[[^]]*\] \)\{0,1\}(\([^ ]*\) .*/\1=\3/p' >"$dir/needed"
  (cd "$dir/archives" && xargs apt-get -q download <../needed >&2) || die "apt-get could not download $package"
  for archive in "$dir"/archives/*.deb; do dpkg-deb --extract "$archive" "$dir"; done
  rm -rf "$dir/archives"
  while read -r _ named program; do
    # Programs find their own data relative to themselves, but not the libraries of other packages.
    [ "${named%\?}" = "$package" ] && [ "${program#/}" = "$program" ] && unpacked_program "$dir" "$program"
  done <<<"$(wanted)"
  return 0
}

# unpacked_program DIRECTORY PROGRAM
unpacked_program() {
  local file libraries
  file=$(find "$PWD/$1" -path '*bin/*' -name "$2" -print -quit)
  [ -n "$file" ] || die "$1 has no program $2"
  libraries=$(find "$PWD/$1" -type d -path "*/lib/*-linux-gnu" -printf '%p:')
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "${libraries%:}" "$file" >"$UNPACKED/bin/$2"
  chmod +x "$UNPACKED/bin/$2"
}
