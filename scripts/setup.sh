#!/usr/bin/env bash
# Installs what `make` needs, says what it does, and does nothing that is done already.
#
#   build   a C and C++ compiler and linker (build-essential), libclang (RocksDB's bindings), the linker mold
#           (.cargo/config.toml), Rust (rustup)
#   tests   psql, and psycopg in a virtual environment of its own: clients that the tests run against the server
#
# On a system without apt it names what is missing and goes on; tests whose client is missing say so.
set -euo pipefail
cd "$(dirname "$0")/.."

venv="$HOME/.cache/millstream/venv"

say() { echo "setup: $*"; }
has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        say "not root and no sudo: cannot run: $*" >&2
        return 1
    fi
}

# Where bindgen looks for it.
has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] || ldconfig -p 2>/dev/null | grep -q libclang ||
        compgen -G '/usr/lib/llvm*/lib/libclang*.so*' >/dev/null
}

install_packages() {
    local missing=()
    has cc && has c++ && has make || missing+=(build-essential)
    has_libclang || missing+=(libclang-dev)
    has mold || missing+=(mold)
    has curl || has cargo || missing+=(curl ca-certificates)
    has psql || missing+=(postgresql-client)
    if ! [ -x "$venv/bin/python" ] && ! { has python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; }; then
        missing+=(python3-venv)
    fi
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! has apt-get; then
        say "please install: ${missing[*]}" >&2
        return 0
    fi
    say "installing ${missing[*]} with apt-get"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_rust() {
    export PATH="$HOME/.cargo/bin:$PATH"
    local wanted
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    if ! has cargo; then
        say "installing Rust $wanted with rustup (https://rustup.rs)"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile minimal --default-toolchain "$wanted" --component rustfmt,clippy
    elif has rustup && ! rustup toolchain list | grep -q "^$wanted"; then
        say "installing Rust $wanted (rust-toolchain.toml) with rustup"
        rustup toolchain install "$wanted" --profile minimal --component rustfmt,clippy
    fi
}

install_psycopg() {
    if "$venv/bin/python" -c 'import psycopg' 2>/dev/null; then
        return 0
    fi
    say "installing psycopg in $venv"
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --retries 1 --timeout 20 'psycopg[binary]>=3.1' ||
        say "psycopg could not be installed: its tests will be skipped" >&2
}

install_packages
install_rust
install_psycopg
say "ready"
