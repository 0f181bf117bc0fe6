# shellcheck shell=bash
# Records what Docker makes of the Dockerfiles in crates/dockerfile/tests/corpus. Sourced by ./dev; provides cmd_docker_corpus.

# The settings of an image, a line each.
# shellcheck disable=SC2016 # $port and $name are variables of the template
CORPUS_SETTINGS='{{range .Config.Env}}env {{.}}
{{end}}{{with .Config.User}}user {{.}}
{{end}}{{with .Config.WorkingDir}}workdir {{.}}
{{end}}{{range .Config.Cmd}}cmd {{printf "%q" .}}
{{end}}{{range .Config.Entrypoint}}entrypoint {{printf "%q" .}}
{{end}}{{range $port, $_ := .Config.ExposedPorts}}expose {{$port}}
{{end}}{{range $name, $value := .Config.Labels}}label {{$name}}={{$value}}
{{end}}'
CORPUS_IMAGE=sandboxd-corpus

# docker-corpus: writes the .expected files, with which the tests compare. It uses the Docker that the program `docker` finds, which
# needs BuildKit and an image `base` with Debian 12, git, procps, PATH and LANG, such as the stand-in for ubuntu:24.04 has.
cmd_docker_corpus() {
  local corpus=$ROOT/crates/dockerfile/tests/corpus context file
  docker image inspect base >/dev/null || die "docker-corpus: Docker does not run, or has no image 'base'"
  context=$(mktemp -d)
  sh "$corpus/make-context.sh" "$context"
  for file in "$corpus"/*.dockerfile; do
    say "building $(basename "$file")"
    record_build "$file" "$context" >"${file%.dockerfile}.expected"
  done
  docker image rm --force "$CORPUS_IMAGE" >/dev/null
  rm -rf "$context"
}

# record_build DOCKERFILE CONTEXT: prints the settings of the image and the files in it.
record_build() {
  local file=$1 context=$2 argument
  local options=(--network none --quiet --tag "$CORPUS_IMAGE" --file "$file")
  local arguments
  read -ra arguments < <(sed -n 's/^#args //p' "$file" | tr '\n' ' ') || true
  for argument in ${arguments[@]+"${arguments[@]}"}; do options+=(--build-arg "$argument"); done
  if ! docker build "${options[@]}" "$context" >"$context.log" 2>&1; then
    echo fails
    rm -f "$context.log"
    return
  fi
  rm -f "$context.log"
  docker inspect --format "$CORPUS_SETTINGS" "$CORPUS_IMAGE" | sed '/^$/d'
  docker run --rm --network none --user 0 --workdir / --entrypoint /bin/sh "$CORPUS_IMAGE" \
    -c "$(cat "$ROOT/crates/dockerfile/tests/corpus/probe")"
}
