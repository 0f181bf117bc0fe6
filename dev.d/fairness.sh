# shellcheck shell=bash
# Runs the long form of the noisy-neighbour suite, e2e/tests/fairness/. Sourced by ./dev; provides cmd_fairness.

# fairness [SECONDS]
cmd_fairness() {
  need_root fairness
  local seconds=${1:-20} log=target/fairness.log status=0
  case $seconds in '' | *[!0-9]*) die "fairness: SECONDS is $seconds; it must be a whole number" ;; esac
  setup build run test
  build_all
  # One isolation after the other: they attack the same host.
  SANDBOXD_FAIRNESS_SECONDS=$seconds SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" \
    cargo test --release --locked --workspace --test fairness -- --ignored --nocapture --test-threads=1 2>&1 |
    tee "$log" || status=1
  say "the tables, for docs/security.md:"
  sed -n '/^|/p' "$log"
  [ "$status" -eq 0 ] || die "the suite failed: an attack harms others, or it could not run; the complete output is in $log"
}
