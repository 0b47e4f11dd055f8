#!/usr/bin/env bash
# Toxiproxy's own API tests (api_test.go of the release whose API we follow), against the embedded link server:
#   tests/support/toxiproxy_suite.sh PYTHON
# They come as a Go module and stay in a scratch folder. Each test talks to the server on its usual test port, and clears it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=$(realpath -s "${1:?name the Python that has this project}")
RELEASE=v2.12.0 PORT=8475
command -v go >/dev/null || { echo "go is missing: Toxiproxy's own tests can't be run" >&2; exit 1; }

scratch=$(mktemp -d)
clean_up() { [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true; rm -rf "$scratch"; }
trap clean_up EXIT
module=$(go mod download -json "github.com/Shopify/toxiproxy/v2@$RELEASE" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp -r "$module" "$scratch/toxiproxy"
chmod -R u+w "$scratch/toxiproxy"
cd "$scratch/toxiproxy"
# Instead of a server in the same process: the one that runs.
sed -i -e '/^var testServer /d' -e '/^func WithServer/,/^}/d' \
    -e '/"time"$/d' -e '/"flag"$/d' -e '/"os"$/d' -e '/prometheus"$/d' -e '/zerolog"$/d' -e '/toxiproxy\/v2"$/d' api_test.go
# The version is that of a build without one; ours names the release whose API it follows.
sed -i 's/\\"version\\": \\"git\\"/\\"version\\": \\"2.12.0-embedded\\"/' api_test.go
cat >server_test.go <<'GO'
package toxiproxy_test

import "testing"

func WithServer(t *testing.T, f func(string)) {
	defer func() {
		proxies, err := client.Proxies()
		if err != nil {
			t.Error("The server does not tell its proxies", err)
		}
		for _, proxy := range proxies {
			if err := proxy.Delete(); err != nil {
				t.Error("A proxy stays", err)
			}
		}
	}()
	f("http://localhost:8475")
}
GO
"$PYTHON" -m diloco_chaos.harness.links.server --port "$PORT" --address-file "$scratch/address" --parent $$ &
server=$!
until [ -s "$scratch/address" ]; do kill -0 "$server"; sleep 0.1; done
only=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' api_test.go | paste -sd '|')
go test -count=1 -v -run "^($only)\$" . 2>&1 | tee "$scratch/out" | grep -E '^(--- FAIL|    api_test|FAIL|ok|panic|\./|#)' || true
passed=$(grep -c '^--- PASS' "$scratch/out" || true)
echo "toxiproxy's own tests: $passed of $(grep -c '^func Test' api_test.go) passed"
[ "$passed" = "$(grep -c '^func Test' api_test.go)" ]
