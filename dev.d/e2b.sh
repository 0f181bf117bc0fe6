# shellcheck shell=bash
# The packages of E2B that the tests use. Sourced by ./dev; provides e2b_packages, cmd_e2b_versions and cmd_e2b_soak.

# The newest release and two earlier minors of each package, newest first.
E2B_PYTHON=(e2b==2.63.0 e2b==2.61.0 e2b==2.60.0)
E2B_PYTHON_CODE=(e2b-code-interpreter==2.11.5 e2b-code-interpreter==2.10.5 e2b-code-interpreter==2.9.2)
# The release of e2b beside each of them. 2.9.2 calls a function of e2b in the form that it had before 2.53.
E2B_PYTHON_CODE_BASE=(e2b==2.63.0 e2b==2.61.0 e2b==2.51.0)
E2B_NPM=(e2b@2.51.0 e2b@2.50.0 e2b@2.49.1)
E2B_NPM_CODE=(@e2b/code-interpreter@2.8.0 @e2b/code-interpreter@2.7.2 @e2b/code-interpreter@2.6.1)

# Installs them below target/e2b/, one folder for each release of e2b, all at the same time. It does nothing if they are
# installed.
e2b_packages() {
  local index directory base
  local -A packages=()
  for base in "${E2B_PYTHON[@]}"; do
    packages[target/e2b/python/${base##*==}]=$base
  done
  for index in "${!E2B_PYTHON_CODE[@]}"; do
    base=${E2B_PYTHON_CODE_BASE[index]}
    packages[target/e2b/python/${base##*==}]="$base ${E2B_PYTHON_CODE[index]}"
  done
  for index in "${!E2B_NPM[@]}"; do
    packages[target/e2b/npm/${E2B_NPM[index]##*@}]="${E2B_NPM[index]} ${E2B_NPM_CODE[index]}"
  done
  for directory in target/e2b/*/*; do
    [ -n "${packages[$directory]:-}" ] || rm -rf "$directory"
  done
  for directory in "${!packages[@]}"; do
    # shellcheck disable=SC2086 # the packages are words
    e2b_install "$directory" ${packages[$directory]} &
  done
  wait
}

# e2b_install DIRECTORY PACKAGE...
e2b_install() {
  local directory=$1 marker=$1/.installed wanted install=e2b_npm
  shift
  case $directory in */python/*) install=e2b_pip ;; esac
  # The packages are for one version of Python.
  wanted="$* $(readlink -f target/venv/bin/python)"
  [ "$(cat "$marker" 2>/dev/null)" = "$wanted" ] && return
  say "installing into $directory: $*"
  rm -rf "$directory"
  mkdir -p "$directory"
  if "$install" "$directory" "$@" >&2; then
    printf '%s\n' "$wanted" >"$marker"
  else
    say "the packages could not be installed: the tests that need $directory will be skipped"
    rm -rf "$directory"
  fi
}

e2b_pip() {
  target/venv/bin/python -m pip install -q --disable-pip-version-check --target "$@"
}

e2b_npm() {
  npm install --no-package-lock --no-audit --no-fund --loglevel=error --prefix "$@"
}

# e2b-soak [CYCLES]: creates, uses and kills many sandboxes, then looks for leftovers.
cmd_e2b_soak() {
  need_root e2b-soak
  setup build run test
  build_all
  SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" SANDBOXD_E2B_CYCLES=${1:-1000} \
    cargo test --release --locked -p e2e --test e2b -- --nocapture cycles
}

# Reports packages with a newer release than the newest pinned one. Fails if there is any.
cmd_e2b_versions() {
  setup test
  local pinned name newest status=0
  for pinned in "${E2B_PYTHON[0]}" "${E2B_PYTHON_CODE[0]}"; do
    name=${pinned%%==*}
    newest=$(target/venv/bin/pip index versions "$name" 2>/dev/null | sed -n '1s/.*(\(.*\))/\1/p')
    report_version "$name" "${pinned##*==}" "$newest" || status=1
  done
  for pinned in "${E2B_NPM[0]}" "${E2B_NPM_CODE[0]}"; do
    name=${pinned%@*}
    newest=$(npm view "$name" version 2>/dev/null)
    report_version "$name" "${pinned##*@}" "$newest" || status=1
  done
  return "$status"
}

# report_version NAME PINNED NEWEST
report_version() {
  if [ -z "$3" ]; then
    say "$1: the newest release is unknown, because the registry did not respond; $2 is pinned"
    return 1
  fi
  [ "$2" = "$3" ] && return
  say "$1: $3 is the newest release; $2 is pinned in dev.d/e2b.sh"
  return 1
}
