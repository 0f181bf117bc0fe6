# shellcheck shell=bash
# gVisor's program `runsc` for the isolation backend "gvisor". Sourced by ./dev; provides gvisor.

# The first release that the service accepts, and the Debian release whose package is taken if the machine has an older one or none.
GVISOR_SINCE=20240101
GVISOR_SUITE=trixie
GVISOR_PROGRAM=target/gvisor/runsc

# gvisor: downloads the package into target/ and unpacks it there, unless the machine or target/ has a recent release. The machine's
# apt sources and packages stay as they are.
gvisor() {
  local program
  for program in runsc "$GVISOR_PROGRAM"; do
    if is_recent_gvisor "$program"; then return; fi
  done
  say "downloading gVisor (Debian $GVISOR_SUITE's package runsc) into $(dirname "$GVISOR_PROGRAM")/"
  if ! download_gvisor target/gvisor || ! is_recent_gvisor "$GVISOR_PROGRAM"; then
    rm -rf target/gvisor
    say "gVisor could not be downloaded: sandboxes run in containers only, and the tests of gVisor fail;" \
      "see docs/isolation.md for other ways to install it"
  fi
}

# is_recent_gvisor PROGRAM: whether it runs and its release, a date, is recent enough.
is_recent_gvisor() {
  local release
  release=$("$1" --version 2>/dev/null | grep -Eom 1 '[0-9]{8}') || return 1
  [ "$release" -ge "$GVISOR_SINCE" ]
}

# download_gvisor DIRECTORY: with package lists of its own, from the mirror that this machine uses for Debian.
download_gvisor() {
  local directory=$PWD/$1 mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg lists
  # shellcheck disable=SC2016 # apt replaces these names.
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 2>/dev/null |
    awk '$1 == "Debian" && $2 !~ /-/ { print $3; exit }')
  if [ -z "$mirror" ] || ! [ -e "$keyring" ]; then return 1; fi
  lists=$directory/apt
  mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
  printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$GVISOR_SUITE" >"$lists/sources.list"
  set -- -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$lists/lists" \
    -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root
  apt "$@" update || return 1
  (cd "$lists" && LC_ALL=C apt-get -q "$@" download runsc >&2) || return 1
  dpkg-deb -x "$lists"/runsc_*.deb "$lists/unpacked" || return 1
  mv "$lists/unpacked/usr/bin/runsc" "$directory/runsc" && rm -rf "$lists"
}
