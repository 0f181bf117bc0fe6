# shellcheck shell=bash
# Third-party programs that are tested with the service. Sourced by ./dev; provides works_with_ci and cmd_works_with.
#
# The table dev.d/works-with.txt lists them with their packages. Each has a folder below target/works-with/, so that no two share
# a package. dev.d/works-with-run.sh runs the program of one.

WORKS_WITH=dev.d/works-with.txt
# Installs packages for another version of Python than that of this machine, which pip does only slowly.
WORKS_WITH_UV=uv==0.13.9

# works-with [NAME...]
cmd_works_with() {
  need_root works-with
  setup build run test
  build_all
  local names=$* name status=0
  for name in "$@"; do
    [ -n "$(works_with_rows '' "$name")" ] || die "works-with: $WORKS_WITH has no row $name"
  done
  works_with_install '' "$names"
  # shellcheck disable=SC2153 # ROOT is set by ./dev
  SANDBOXD_AGENT="$ROOT/target/bin/sandbox-agent" SANDBOXD_WORKS_WITH="$names" \
    cargo test --release --locked --workspace --test works_with -- --ignored --nocapture || status=$?
  works_with_versions "$names"
  [ "$status" -eq 0 ] || die "works-with failed"
}

# The packages of those that ./dev test runs.
works_with_ci() { works_with_install ci ''; }

# works_with_rows WHERE NAMES: the rows of the table, or those with this WHERE or one of these names.
works_with_rows() {
  local name where rest
  while read -r name where rest; do
    case $name in '#'* | '') continue ;; esac
    case $1 in '' | "$where") ;; *) continue ;; esac
    case " $2 " in '  ' | *" $name "*) printf '%s %s %s\n' "$name" "$where" "$rest" ;; esac
  done <"$WORKS_WITH"
}

# Packages that are installed at the same time.
WORKS_WITH_JOBS=3

# works_with_install WHERE NAMES. It does nothing for packages that are installed.
works_with_install() {
  local name where runtime packages rows
  rows=$(works_with_rows "$1" "$2")
  if grep -q ' newer-python ' <<<"$rows"; then
    venv target/works-with/uv "$WORKS_WITH_UV"
    works_with_root target/works-with/root || say "there is no Debian root file system: programs that need it will be skipped"
  fi
  while read -r name where runtime packages; do
    [ "$runtime" != sdk ] || continue
    works_with_package "$name" "$runtime" "$packages" &
    [ "$(jobs -pr | wc -l)" -lt "$WORKS_WITH_JOBS" ] || wait -n
  done <<<"$rows"
  wait
}

# works_with_package NAME RUNTIME "PACKAGE..."
works_with_package() {
  local directory=target/works-with/$1 packages=$3 marker wanted install list
  marker=$directory/.installed
  read -ra list <<<"$packages"
  case $2 in
    python) install=works_with_python ;;
    newer-python) install=works_with_newer_python ;;
    npm) install=works_with_npm ;;
    *) die "works-with: $WORKS_WITH has an unknown runtime: $2" ;;
  esac
  wanted="$2 $packages $(readlink -f "$(command -v python3)")"
  [ "$(cat "$marker" 2>/dev/null)" = "$wanted" ] && return
  say "installing into $directory: $packages"
  rm -rf "$directory"
  mkdir -p "$directory"
  if "$install" "$directory" "${list[@]}" >&2; then
    printf '%s\n' "$wanted" >"$marker"
  else
    say "the packages could not be installed: $1 will be skipped"
    rm -rf "$directory"
  fi
}

works_with_python() {
  local directory=$1
  shift
  python3 -m venv --clear "$directory" && "$directory/bin/python" -m pip install -q --disable-pip-version-check "$@"
}

works_with_npm() {
  npm install --no-package-lock --no-audit --no-fund --loglevel=error --prefix "$@"
}

# Only packages: dev.d/works-with-run.sh runs them with the Python of a Debian root.
works_with_newer_python() {
  local directory=$1
  shift
  [ -e target/works-with/root/.complete ] || return 1
  target/works-with/uv/bin/uv pip install -q --native-tls --no-config --cache-dir target/works-with/cache \
    --only-binary :all: --python-version 3.13 --python target/works-with/uv/bin/python --target "$directory" "$@"
}

# A Debian root file system whose Python is newer than that of Debian 12.
works_with_root() {
  [ -e "$1/.complete" ] && return
  say "building a Debian root file system in $1"
  rm -rf --one-file-system "$1"
  mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates,git trixie "$1" && touch "$1/.complete"
}

# works_with_versions NAMES: reports packages with a newer release than the pinned one.
works_with_versions() {
  local name where runtime packages package newest list
  venv target/works-with/uv "$WORKS_WITH_UV"
  while read -r name where runtime packages; do
    case $name in *@*) continue ;; esac
    read -ra list <<<"$packages"
    for package in ${list[@]+"${list[@]}"}; do
      case $package in
        *==*)
          newest=$(works_with_newest_python "${package%%[=[]*}")
          works_with_report "$package" "${package##*==}" "$newest"
          ;;
        *?@[0-9]*)
          newest=$(npm view "${package%@*}" version 2>/dev/null || true)
          works_with_report "$package" "${package##*@}" "$newest"
          ;;
      esac
    done
  done <<<"$(works_with_rows '' "$1")"
}

# pip omits releases that the interpreter cannot run.
works_with_newest_python() {
  target/works-with/uv/bin/pip index versions --ignore-requires-python "$1" 2>/dev/null | sed -n '1s/.*(\(.*\))/\1/p' || true
}

# works_with_report PACKAGE PINNED NEWEST
works_with_report() {
  case $3 in
    "$2") ;;
    '') say "works-with: the newest release of $1 is unknown, because the registry did not respond" ;;
    *) say "works-with: $3 is newer than $1, which is pinned in $WORKS_WITH" ;;
  esac
}
