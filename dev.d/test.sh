# shellcheck shell=bash
# Runs the tests as root, then reports resources that they left on the machine. Sourced by ./dev; provides cmd_test.
#
# A test that cannot run on this machine appends a line `NAME: REASON` to the file named by SANDBOXD_SKIP_LOG and returns.
# The lines are shown at the end; with CI=true they are failures. So are ignored tests, except those whose reason names the
# ./dev command that runs them.

# Integration tests that wait most of the time: for another machine, for timers, or for programs of Python and Node. They run beside the
# longest test, whose time they would otherwise add to.
WAITING_TESTS="cgroup_v2 lxcfs mcp sdk"
LONGEST_TEST=service

cmd_test() {
  need_root test
  setup build run test bench
  build_all

  local status=0 dir=target/test
  mkdir -p "$dir"
  rm -f "$dir/skipped"
  : >"$dir/skipped"
  cargo xtask census --save "$dir/census-before"
  export SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" SANDBOXD_SKIP_LOG="$ROOT/$dir/skipped"
  if [ $# -eq 0 ]; then
    all_tests "$dir" 2>&1 | tee "$dir/log" || status=1
  else
    selected_tests "$@" 2>&1 | tee "$dir/log" || status=1
  fi
  [ "$status" -eq 0 ] || say "tests failed; the complete output is in $dir/log"
  # Check for leaks after failures too: a failed test must not hide its leaks.
  cargo xtask census --compare "$dir/census-before" || status=1
  report_skipped "$dir" || status=1
  [ "$status" -eq 0 ] || die "./dev test failed"
  say "all tests passed and left nothing behind"
}

selected_tests() {
  local scope=(--workspace) arg
  for arg in "$@"; do
    case $arg in -p | -p?* | --package | --package=*) scope=() ;; --) break ;; esac
  done
  cargo test --release --locked --no-fail-fast ${scope[@]+"${scope[@]}"} "$@"
}

# all_tests DIR. Each cargo selects from the whole workspace, so that crates keep the features with which they were built.
all_tests() {
  local dir=$1 name status=0 waiting others=() beside=()
  for name in $(integration_tests); do
    case " $WAITING_TESTS $LONGEST_TEST " in
      *" $name "*) ;;
      *) others+=(--test "$name") ;;
    esac
  done
  for name in $WAITING_TESTS; do beside+=(--test "$name"); done
  # A test runs them. Cargo builds them by itself only for an unfiltered `cargo test`.
  cargo build --release --workspace --locked --examples || status=1
  selected_tests --lib --bins "${others[@]}" || status=1
  selected_tests --doc || status=1
  selected_tests "${beside[@]}" >"$dir/log.waiting" 2>&1 &
  waiting=$!
  selected_tests --test "$LONGEST_TEST" || status=1
  wait "$waiting" || status=1
  cat "$dir/log.waiting"
  gvisor_suites || status=1
  return "$status"
}

# The names of the integration tests of all packages.
integration_tests() {
  local path
  for path in ./*/tests/*.rs ./*/tests/*/main.rs crates/*/tests/*.rs crates/*/tests/*/main.rs; do
    case $path in
      */\*.rs | */\*/main.rs) ;;
      */main.rs) basename "$(dirname "$path")" ;;
      *) basename "$path" .rs ;;
    esac
  done | sort -u
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
