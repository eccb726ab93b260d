#!/bin/sh
# Install the project with the versions of constraints.txt into a virtual environment: by uv if it is on PATH, else by
# pip. The Makefile calls it: tools/install.sh .venv
# uv does not read pip's settings, so indexes, links and the certificate of pip are passed on. `UV= make` uses pip.
set -eu
venv=$1
uv=${UV-uv}

setting() { # of pip, on one line: from the environment, else from pip.conf
    eval "value=\${PIP_$(echo "$1" | tr 'a-z-' 'A-Z_'):-}"
    [ -n "$value" ] || value=$("$venv/bin/python" -m pip config get "global.$1" 2>/dev/null || true)
    # shellcheck disable=SC2086
    echo $value
}

by_uv() (
    index=$(setting index-url) extra=$(setting extra-index-url) links=$(setting find-links) cert=$(setting cert)
    [ -z "$index" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [ -z "$extra" ] || export UV_EXTRA_INDEX_URL="${UV_EXTRA_INDEX_URL:-$extra}"
    [ -z "$links" ] || export UV_FIND_LINKS="${UV_FIND_LINKS:-$(echo "$links" | tr ' ' ,)}"
    [ -z "$cert" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"
    # pip takes the best version of all indexes too
    "$uv" pip install --python "$venv/bin/python" --index-strategy unsafe-best-match -c constraints.txt \
        -e ".[pipeline,dev]"
)

if [ -n "$uv" ] && command -v "$uv" >/dev/null; then
    by_uv && exit
    echo "uv failed, see above; installing with pip"
fi
exec "$venv/bin/python" -m pip install --disable-pip-version-check -c constraints.txt -e ".[pipeline,dev]"
