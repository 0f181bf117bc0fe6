# shellcheck shell=bash
# Runs the suites of sandboxes with another backend than the default one, and the fuzzer of system calls. Sourced by ./dev; provides
# cmd_suites, cmd_fuzz_syscalls and gvisor_suites.

# The suites that containers of every runtime pass, and those that sandboxes under gVisor pass.
RUNTIME_SUITES="escape abuse recovery chaos lifecycle detached network service"
GVISOR_SUITES="network detached recovery chaos lifecycle service"

# suites BACKEND [SUITE...]
cmd_suites() {
  need_root suites
  local backend=${1:-} suites
  [ $# -eq 0 ] || shift
  setup build run test
  build_all
  case $backend in
    gvisor)
      suites=${*:-$GVISOR_SUITES}
      export SANDBOXD_TEST_ISOLATION=gvisor
      ;;
    '' | -*) die "suites: name a backend: gvisor, or an OCI runtime such as runc" ;;
    *)
      suites=${*:-$RUNTIME_SUITES}
      SANDBOXD_TEST_RUNTIME=$(command -v "$backend") || die "suites: there is no program $backend"
      export SANDBOXD_TEST_RUNTIME
      ;;
  esac
  run_suites "$suites" || die "the suites failed on $backend"
  say "the suites passed on $backend: $suites"
}

# run_suites "SUITE...". With the whole workspace, so that crates keep the features with which build_all has built them.
run_suites() {
  local suite arguments=()
  for suite in $1; do arguments+=(--test "$suite"); done
  SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" cargo test --release --locked --no-fail-fast --workspace "${arguments[@]}"
}

# gvisor_suites: the network of sandboxes under gVisor, as a part of ./dev test.
gvisor_suites() {
  SANDBOXD_TEST_ISOLATION=gvisor run_suites network
}

# fuzz-syscalls [MINUTES]
cmd_fuzz_syscalls() {
  need_root fuzz-syscalls
  local minutes=${1:-30}
  case $minutes in '' | *[!0-9]*) die "fuzz-syscalls: MINUTES is $minutes; it must be a whole number" ;; esac
  setup build run test
  build_all
  SANDBOXD_FUZZ_SECONDS=$((minutes * 60)) SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" \
    cargo test --release --locked --workspace --test syscall_fuzz -- --ignored --nocapture
}
