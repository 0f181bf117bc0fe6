# shellcheck shell=bash
# gVisor's program `runsc` for the isolation backend "gvisor". Sourced by ./dev; provides gvisor and report_gvisor.

# The first release that the service accepts, and the Debian release whose package is taken if the machine has an older one or none.
GVISOR_SINCE=20240101
GVISOR_SUITE=trixie
GVISOR_PROGRAM=target/gvisor/runsc

# Why there is no gVisor: one line. A setup that finds gVisor removes the file.
GVISOR_MISSING=target/.gvisor-missing
GVISOR_REASON=

# gvisor: downloads the package into target/ and unpacks it there, unless the machine or target/ has a recent release. The machine's
# apt sources and packages stay as they are.
gvisor() {
  local program
  for program in runsc "$GVISOR_PROGRAM"; do
    if is_recent_gvisor "$program"; then
      rm -f "$GVISOR_MISSING"
      return
    fi
  done
  say "downloading gVisor (Debian $GVISOR_SUITE's package runsc) into $(dirname "$GVISOR_PROGRAM")/"
  if download_gvisor target/gvisor && is_recent_gvisor "$GVISOR_PROGRAM"; then
    rm -f "$GVISOR_MISSING"
    return
  fi
  rm -rf target/gvisor
  mkdir -p target
  printf '%s\n' "$GVISOR_REASON" >"$GVISOR_MISSING"
}

# report_gvisor: says that there is no gVisor, and why. The last thing that a command of ./dev says, because sandboxes then run in
# containers only.
report_gvisor() {
  if ! [ -e "$GVISOR_MISSING" ]; then return 0; fi
  say "gVisor is MISSING, the stronger isolation: $(cat "$GVISOR_MISSING")"
  say "sandboxes run in containers only, and the tests of gVisor fail; run ./dev setup again, or see docs/isolation.md for other ways" \
    "to install it"
}

# is_recent_gvisor PROGRAM: whether it runs and its release, a date, is recent enough. Otherwise sets GVISOR_REASON. Not a pipe to
# `grep -m 1`: under pipefail the end of grep would now and then end runsc by SIGPIPE, and a good release would be thrown away.
is_recent_gvisor() {
  local text
  if ! text=$("$1" --version 2>/dev/null); then
    GVISOR_REASON="$1 --version fails"
    return 1
  fi
  if ! [[ $text =~ [0-9]{8} ]]; then
    GVISOR_REASON="$1 names no release"
    return 1
  fi
  if [ "${BASH_REMATCH[0]}" -lt "$GVISOR_SINCE" ]; then
    GVISOR_REASON="$1 is release ${BASH_REMATCH[0]}, which is older than $GVISOR_SINCE"
    return 1
  fi
}

# download_gvisor DIRECTORY: with package lists of its own, from the mirror that this machine uses for Debian.
download_gvisor() {
  local directory=$PWD/$1 mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg lists
  # shellcheck disable=SC2016 # apt replaces these names.
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 2>/dev/null |
    awk '$1 == "Debian" && $2 !~ /-/ && !found { print $3; found = 1 }') || true
  if [ -z "$mirror" ]; then GVISOR_REASON="apt has no package source of Debian"; return 1; fi
  if ! [ -e "$keyring" ]; then GVISOR_REASON="there is no $keyring"; return 1; fi
  lists=$directory/apt
  mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
  printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$GVISOR_SUITE" >"$lists/sources.list"
  set -- -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$lists/lists" \
    -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root
  GVISOR_REASON="the package lists of Debian $GVISOR_SUITE could not be read from $mirror"
  apt "$@" update || return 1
  GVISOR_REASON="the package runsc could not be downloaded from $mirror"
  (cd "$lists" && LC_ALL=C apt-get -q "$@" download runsc >&2) || return 1
  GVISOR_REASON="the package runsc could not be unpacked"
  dpkg-deb -x "$lists"/runsc_*.deb "$lists/unpacked" || return 1
  mv "$lists/unpacked/usr/bin/runsc" "$directory/runsc" && rm -rf "$lists"
}
