#!/usr/bin/env bash
# Builds a template whose programs trust the certificate authority of a company, and makes a request with it.
#
# usage: corporate_ca.sh CERTIFICATE URL
#
# CERTIFICATE is the authority's certificate as a PEM file. IMAGE is the base, by default ubuntu:24.04. For pip alone, without a
# template, see CERTIFICATE of pip_allowlist.py.
set -euo pipefail

certificate=$1
url=$2
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp -- "$certificate" "$context/company.crt"

# Debian's list serves curl, git, wget and OpenSSL. Python's requests, pip and Node.js have lists of their own, so variables name
# the file. They hold for every command of every sandbox from the template.
cat >"$context/Dockerfile" <<DOCKERFILE
FROM ${IMAGE:-ubuntu:24.04}
RUN command -v update-ca-certificates || (apt-get update && apt-get install -y ca-certificates curl)
COPY company.crt /usr/local/share/ca-certificates/company.crt
RUN update-ca-certificates
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
ENV REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ENV NODE_EXTRA_CA_CERTS=/usr/local/share/ca-certificates/company.crt
DOCKERFILE

sbx build --tag with-company-ca "$context" >&2
sbx run with-company-ca -- "curl -sSf '$url'"
