#!/usr/bin/env bash
# Makes the images that docker-compose.yml names where no image registry can be reached, from packages alone:
#   docker/offline.sh [WHEEL_FOLDER]      default: ../shared/wheels; what is not in it comes from the package index
# What is there already is left as it is, so that a second call costs nothing. Needs docker, python3 with pip;
# for images that are missing also debootstrap (as root) and go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BASE=${DILOCO_CHAOS_BASE:-python:3.11-slim}
TOXIPROXY=${DILOCO_CHAOS_TOXIPROXY_IMAGE:-ghcr.io/shopify/toxiproxy:2.12.0}
IMAGE=${DILOCO_CHAOS_IMAGE:-diloco-chaos:local}
WHEELS=${1:-../shared/wheels}
export DOCKER_BUILDKIT=0   # the classic builder needs no image of its own

say() { printf 'offline: %s\n' "$*"; }
fail() { printf 'offline: %s\n' "$*" >&2; exit 1; }
have() { docker image inspect "$1" >/dev/null 2>&1; }
build() { docker build "$@" >"$scratch/log" 2>&1 || { tail -n 30 "$scratch/log" >&2; fail "docker build failed"; }; }
need() { command -v "$1" >/dev/null || fail "$1 is missing: $2"; }

need docker "install docker.io (Debian), or Docker's own packages"
docker version >/dev/null 2>&1 || fail "no engine answers: start dockerd, or set DOCKER_HOST; you may need to be in the group docker"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if have "$BASE"; then say "$BASE: there"; else
  need debootstrap "apt-get install debootstrap"
  [ "$(id -u)" = 0 ] || fail "debootstrap must be root to make $BASE; run this script as root once"
  say "$BASE: from Debian's packages"
  debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates bookworm "$scratch/base" >"$scratch/log" \
    || { tail -n 20 "$scratch/log" >&2; fail "debootstrap failed"; }
  rm -rf "$scratch"/base/var/cache/apt/* "$scratch"/base/var/lib/apt/lists/* "$scratch"/base/usr/share/{doc,man,locale}
  tar -C "$scratch/base" -c . | docker import --change 'CMD ["python3"]' - "$BASE" >/dev/null
fi

if have "$TOXIPROXY"; then say "$TOXIPROXY: there"; else
  need go "install Go 1.21 or newer"
  say "$TOXIPROXY: built from its sources"
  mkdir "$scratch/toxiproxy"
  version=${TOXIPROXY##*:}
  GOBIN="$scratch/toxiproxy" CGO_ENABLED=0 go install -trimpath -ldflags "-s -w -X github.com/Shopify/toxiproxy/v2.Version=$version" \
    "github.com/Shopify/toxiproxy/v2/cmd/server@v$version"
  printf 'FROM scratch\nCOPY server /toxiproxy\nEXPOSE 8474\nENTRYPOINT ["/toxiproxy"]\nCMD ["-host=0.0.0.0"]\n' >"$scratch/toxiproxy/Dockerfile"
  build --tag "$TOXIPROXY" "$scratch/toxiproxy"
fi

# The image is made anew whenever anything that goes into it has changed.
state=$(cat docker/Dockerfile docker/requirements.txt docker/cluster.json src/diloco_chaos/__init__.py $(find harness -name '*.py' | sort) | sha256sum | cut -c1-16)
state="$state-$(docker image inspect --format '{{.Id}}' "$BASE" | cut -c8-23)"
if [ "$(docker image inspect --format '{{index .Config.Labels "diloco-chaos.made-from"}}' "$IMAGE" 2>/dev/null)" = "$state" ]; then
  say "$IMAGE: there"
  exit 0
fi
say "$IMAGE: from wheels"
need python3 "the wheels are fetched with pip"
tag=$(docker run --rm --network none "$BASE" python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')
python3 -m pip download --quiet --disable-pip-version-check --dest docker/wheels --find-links "$WHEELS" --find-links docker/wheels \
  --only-binary :all: --implementation cp --python-version "$tag" --abi "cp$tag" --abi abi3 --abi none \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform linux_x86_64 \
  --requirement docker/requirements.txt
build --file docker/Dockerfile --tag "$IMAGE" --build-arg BASE="$BASE" --build-arg WHEELS=docker/wheels \
  --build-arg PIP_OPTIONS=--no-index --label diloco-chaos.made-from="$state" .
say "$IMAGE: $(docker image inspect --format '{{.Size}}' "$IMAGE" | awk '{printf "%.0f MB", $1/1e6}')"
