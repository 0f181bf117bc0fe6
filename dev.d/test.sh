# shellcheck shell=bash
# Runs the tests as root, then reports resources that they left on the machine. Sourced by ./dev; provides cmd_test.
#
# A test that cannot run on this machine appends a line `NAME: REASON` to the file named by SANDBOXD_SKIP_LOG and returns.
# The lines are shown at the end; with CI=true they are failures. So are ignored tests, except those whose reason names the
# ./dev command that runs them.

cmd_test() {
  need_root test
  setup build run test bench
  build_all

  local scope=(--workspace) arg status=0 dir=target/test
  for arg in "$@"; do
    case $arg in -p | -p?* | --package | --package=*) scope=() ;; --) break ;; esac
  done
  mkdir -p "$dir"
  rm -f "$dir/skipped"
  : >"$dir/skipped"
  cargo xtask census --save "$dir/census-before"
  SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" SANDBOXD_SKIP_LOG="$ROOT/$dir/skipped" \
    cargo test --release --locked --no-fail-fast ${scope[@]+"${scope[@]}"} "$@" 2>&1 | tee "$dir/log" || status=1
  if [ $# -eq 0 ]; then
    SANDBOXD_SKIP_LOG="$ROOT/$dir/skipped" gvisor_suites 2>&1 | tee -a "$dir/log" || status=1
  fi
  [ "$status" -eq 0 ] || say "tests failed; the complete output is in $dir/log"
  # Check for leaks after failures too: a failed test must not hide its leaks.
  cargo xtask census --compare "$dir/census-before" || status=1
  report_skipped "$dir" || status=1
  [ "$status" -eq 0 ] || die "./dev test failed"
  say "all tests passed and left nothing behind"
}

report_skipped() {
  sed -n -e '/ \.\.\. ignored, run by \.\/dev /d' -e 's/^test \(.*\) \.\.\. ignored\(, \)\{0,1\}/\1: /p' "$1/log" \
    >>"$1/skipped"
  if [ ! -s "$1/skipped" ]; then
    return 0
  fi
  say "skipped on this machine:"
  sed 's/^/  /' "$1/skipped" >&2
  if [ "${CI:-}" = true ]; then
    say "in CI all tests must run"
    return 1
  fi
}
