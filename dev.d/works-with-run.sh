#!/usr/bin/env bash
# Runs the program of a row of dev.d/works-with.txt with its packages: works-with-run.sh NAME RUNTIME. Called by the tests in
# e2e/tests/works_with/. Prints nothing itself.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/.."
packages=$PWD/target/works-with/$1
program=$PWD/e2e/tests/works_with/programs/${1%%@*}
shared=$PWD/e2e/tests/e2b/programs
root=$PWD/target/works-with/root
export PYTHONDONTWRITEBYTECODE=1

case $2 in
  python) PYTHONPATH=$shared exec "$packages/bin/python" "$program.py" ;;
  sdk) PYTHONPATH=$shared:$PWD/sdk/python/src exec target/venv-sdk/bin/python "$program.py" ;;
  npm)
    # Node.js looks for packages beside the program.
    cp "$program.mjs" "$packages/"
    exec node --import="$shared/names.mjs" "$packages/$(basename "$program").mjs"
    ;;
  newer-python)
    export PYTHONPATH=$packages:$shared
    # In a mount namespace of its own, which ends with the program. The program sees the paths of the host.
    # shellcheck disable=SC2016 # the inner bash expands it
    exec unshare --mount --propagation=private bash -euc '
      root=$1 here=$2 program=$3
      for path in /dev /tmp "$here"; do
        mkdir -p "$root$path"
        mount --rbind "$path" "$root$path"
      done
      mount -t proc proc "$root/proc"
      exec chroot "$root" python3 "$program"
    ' - "$root" "$PWD" "$program.py"
    ;;
esac
