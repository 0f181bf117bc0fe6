# shellcheck shell=bash
# Runs the targets of fuzz/ with cargo-fuzz. Sourced by ./dev; provides cmd_fuzz.

cmd_fuzz() {
  setup build fuzz
  local target=${1:-} seconds=${2:-60} targets
  case $seconds in '' | *[!0-9]*) die "fuzz: SECONDS is $seconds; it must be a whole number" ;; esac
  if ! cargo fuzz --version >/dev/null 2>&1; then
    say "installing cargo-fuzz (takes some minutes, once)"
    cargo install cargo-fuzz --locked || die "cargo-fuzz could not be installed; try: cargo install cargo-fuzz --locked"
  fi
  # The sanitizer needs unstable flags. With this variable the stable compiler accepts them.
  export RUSTC_BOOTSTRAP=1
  targets=$(cargo fuzz list)
  if [ -n "$target" ]; then
    grep -qxF -- "$target" <<<"$targets" || die "fuzz: unknown target $target; known targets: $(tr '\n' ' ' <<<"$targets")"
    targets=$target
  fi
  for target in $targets; do
    say "fuzz: $target for $seconds s"
    cargo fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048
  done
}
