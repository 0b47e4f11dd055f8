#!/usr/bin/env bash
# A real Kubernetes on one machine, for CI and for trying things: an API server and nodes of their own, from Debian's packages
# and Go modules alone. Root only. Everything is kept under FOLDER; of the machine nothing is changed but the bridge k8br0, network
# namespaces kn*, routes to 10.244/16 and 10.96/16, one iptables rule, and cgroups /kn*. `down` undoes these.
#   docker/kubernetes.sh FOLDER deps | build [PACKED] | images [NAME...]   packages, binaries (PACKED: a folder of *.xz), images
#   docker/kubernetes.sh FOLDER up [NODES] | down | load NAME...           `load`: images of the Docker engine, into all nodes
#   docker/kubernetes.sh FOLDER off NODE | on NODE | cut NODE | heal NODE  power, and the network, of a node (kn1, kn2, ...)
#   docker/kubernetes.sh FOLDER restart-control-plane
set -euo pipefail
H=${1:?name a folder for everything} V=1.34.4 CV=1.14.3
H=$(mkdir -p "$H" && cd "$H" && pwd)
mkdir -p $H/bin $H/src/hyperkube $H/src/coredns $H/kube/images $H/img
export GOTOOLCHAIN=local CGO_ENABLED=0

deps() {
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends containerd runc containernetworking-plugins \
    iptables nftables conntrack ipset iproute2 openssl busybox-static gcc libc6-dev xz-utils >/dev/null
}

build() {
  cd $H/src/hyperkube
cat >main.go <<'END_OF_FILE'
// One binary for a whole Kubernetes: the name it is called by (or its first argument) says which component it is.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "hyperkube" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	var command *cobra.Command
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = manager.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		command = proxy.NewProxyCommand()
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
		return
	default:
		fmt.Fprintln(os.Stderr, "hyperkube: no component", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
END_OF_FILE
  go mod download k8s.io/kubernetes@v$V
  # k8s.io/kubernetes points its staging modules at its own tree; the proxy has them as v0.X.Y
  { printf 'module hyperkube\n\ngo 1.24.0\n\ngodebug default=go1.24\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' $V
    sed -n 's#^\t\(k8s.io/[^ ]*\) => ./staging/.*#\t\1 => \1 v0.'"${V#1.}"'#p' "$(go env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/v$V.mod"
    echo ")"; } >go.mod
  go mod tidy >/dev/null 2>&1
  M=${V#1.}; M=${M%.*}
  X=""; for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do X="$X -X $p.gitVersion=v$V -X $p.gitMajor=1 -X $p.gitMinor=$M"; done
  nice -n 10 go build -mod=readonly -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w $X" -o $H/bin/hyperkube .
}

coredns() {
  cd $H/src/coredns
cat >main.go <<'END_OF_FILE'
// CoreDNS with the few plugins that a small cluster needs.
package main

import (
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/bind"

	"github.com/coredns/coredns/coremain"
)

func main() { coremain.Run() }
END_OF_FILE
  printf 'module coredns\n\ngo 1.25.0\n\nrequire github.com/coredns/coredns v%s\n' $CV >go.mod
  go mod tidy >/dev/null 2>&1
  nice -n 10 go build -mod=readonly -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w" -o $H/bin/coredns .
}

images() {
  cd $H/img
cat >pause.c <<'END_OF_FILE'
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void down(int s) { _exit(0); }
static void reap(int s) { while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) {
  struct sigaction d = {.sa_handler = down}, r = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &d, 0); sigaction(SIGTERM, &d, 0); sigaction(SIGCHLD, &r, 0);
  for (;;) pause();
}
END_OF_FILE
cat >mkimage.py <<'END_OF_FILE'
"""mkimage.py OUT.tar NAME:TAG ROOT CMD...: a docker-archive of one layer, the folder ROOT (what `docker save` writes), without Docker."""
import hashlib, io, json, sys, tarfile
out, name, root, *cmd = sys.argv[1:]
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as t:
    t.add(root, arcname=".", filter=lambda i: (setattr(i, "uid", 0), setattr(i, "gid", 0), i)[2])
layer = layer.getvalue()
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": cmd, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/sbin"]},
                     "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}, "history": [{}]}).encode()
cname = hashlib.sha256(config).hexdigest() + ".json"
manifest = json.dumps([{"Config": cname, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
with tarfile.open(out, "w") as t:
    for n, b in ((cname, config), ("layer.tar", layer), ("manifest.json", manifest)):
        i = tarfile.TarInfo(n); i.size = len(b); t.addfile(i, io.BytesIO(b))
END_OF_FILE
  rm -rf r1 r2; mkdir -p r1 r2/bin r2/tmp r2/etc r2/proc r2/dev r2/sys
  gcc -Os -static -s -o r1/pause pause.c
  for a in $(busybox --list); do [ $a = busybox ] || ln -s busybox r2/bin/$a; done; cp /bin/busybox r2/bin/busybox
  python3 mkimage.py $H/kube/images/pause.tar localhost/pause:1 r1 /pause
  python3 mkimage.py $H/kube/images/bb.tar localhost/bb:1 r2 /bin/sh
  # any other image: `docker save NAME -o $H/kube/images/NAME.tar`, or a debootstrap folder through mkimage.py
}

cat >$H/k8s-up.sh <<'END_OF_FILE'
#!/usr/bin/env bash
# k8s-up.sh FOLDER BIN [NODES]: a real Kubernetes on this host: etcd, apiserver, controller manager and scheduler beside the
# host's processes, and NODES nodes, each containerd + kubelet + kube-proxy in network, mount, PID and UTS namespaces of its own.
# BIN holds hyperkube. Everything is written under FOLDER. k8s-down.sh FOLDER ends it all.
set -euo pipefail
D=$1 BIN=$2 N=${3:-2} HERE=$(cd "$(dirname "$0")" && pwd)
NET=10.78.0
mkdir -p $D/{pki,log,pid,etcd,conf}
log() { printf '%s %s\n' "$(date +%T.%1N)" "$*"; }
for c in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do ln -sf hyperkube $BIN/$c; done

cd $D/pki
if [ ! -f ca.crt ]; then
  openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=k8s-ca -days 30 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -keyout api.key -out api.csr -subj /CN=kube-apiserver 2>/dev/null
  printf 'subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:%s.1,IP:10.96.0.1\n' $NET >api.ext
  openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out api.crt -days 30 -extfile api.ext 2>/dev/null
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
fi
token() { openssl rand -hex 16; }
: >tokens.csv
kubeconfig() { # name user groups
  local t; t=$(token); echo "$t,$2,$2${3:+,\"$3\"}" >>tokens.csv
  cat >$D/conf/$1.kubeconfig <<C
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "https://$NET.1:6443", certificate-authority: $D/pki/ca.crt}}]
users: [{name: u, user: {token: "$t"}}]
contexts: [{name: k, context: {cluster: k, user: u}}]
current-context: k
C
}
kubeconfig admin admin system:masters
kubeconfig scheduler system:kube-scheduler
kubeconfig manager system:kube-controller-manager
kubeconfig proxy system:kube-proxy
for i in $(seq $N); do kubeconfig kn$i system:node:kn$i system:nodes; done

# Docker's FORWARD policy DROP would cut node from node (br_netfilter)
iptables -C FORWARD -i k8br0 -o k8br0 -j ACCEPT 2>/dev/null || iptables -I FORWARD -i k8br0 -o k8br0 -j ACCEPT
ip link add k8br0 type bridge; ip addr add $NET.1/24 dev k8br0; ip link set k8br0 up
for i in $(seq $N); do
  ip netns add kn$i; ip link add k8v$i type veth peer name eth0 netns kn$i; ip link set k8v$i master k8br0 up
  ip -n kn$i addr add $NET.1$i/24 dev eth0; ip -n kn$i link set eth0 up; ip -n kn$i link set lo up; ip -n kn$i route add unreachable default metric 4096   # nothing leaves this machine
  ip route add 10.244.$i.0/24 via $NET.1$i
  for j in $(seq $N); do [ $i = $j ] || ip -n kn$i route add 10.244.$j.0/24 via $NET.1$j; done
done

ip route add 10.96.0.0/16 via $NET.11   # the host reaches Services through kn1's kube-proxy, never through its default route

daemon() { local n=$1; shift; setsid "$@" >$D/log/$n.log 2>&1 </dev/null & echo $! >$D/pid/$n; }
log etcd
daemon etcd $BIN/etcd --data-dir $D/etcd --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 \
  --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 --initial-cluster default=http://127.0.0.1:23800 --unsafe-no-fsync
log apiserver
daemon kube-apiserver $BIN/kube-apiserver --etcd-servers http://127.0.0.1:23790 --advertise-address $NET.1 --bind-address $NET.1 --secure-port 6443 \
  --tls-cert-file $D/pki/api.crt --tls-private-key-file $D/pki/api.key --token-auth-file $D/pki/tokens.csv --authorization-mode Node,RBAC \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file $D/pki/sa.pub --service-account-signing-key-file $D/pki/sa.key \
  --service-cluster-ip-range 10.96.0.0/16 --allow-privileged=true --kubelet-preferred-address-types InternalIP --endpoint-reconciler-type none --profiling=false
export KUBECONFIG=$D/conf/admin.kubeconfig
for _ in $(seq 600); do $BIN/kubectl get --raw /readyz >/dev/null 2>&1 && break; sleep 0.3; done
log apiserver ready
daemon kube-controller-manager $BIN/kube-controller-manager --kubeconfig $D/conf/manager.kubeconfig --use-service-account-credentials=true \
  --service-account-private-key-file $D/pki/sa.key --root-ca-file $D/pki/ca.crt --leader-elect=false --bind-address 127.0.0.1 --secure-port 20257 \
  --node-monitor-grace-period 12s --node-monitor-period 1s
daemon kube-scheduler $BIN/kube-scheduler --kubeconfig $D/conf/scheduler.kubeconfig --leader-elect=false --bind-address 127.0.0.1 --secure-port 20259

for i in $(seq $N); do "$HERE/k8s-node.sh" $D $BIN $i; done
for _ in $(seq 600); do [ "$($BIN/kubectl get nodes --no-headers 2>/dev/null | grep -cw Ready)" = $N ] && break; sleep 0.3; done
log nodes ready
[ ! -x $BIN/coredns ] || $HERE/k8s-dns.sh $D $BIN
$BIN/kubectl get nodes -o wide
END_OF_FILE
cat >$H/k8s-node.sh <<'END_OF_FILE'
#!/usr/bin/env bash
# k8s-node.sh FOLDER BIN I: node kn$I: one process (unshare) holds it; SIGKILL to that process is a power loss of the node.
set -euo pipefail
D=$1 BIN=$2 I=$3 X=$1/kn$3
mkdir -p $X/{kubelet,cni-lib,log-pods,log-containers,ctr,etc-cni,sys} /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers
find /sys/fs/cgroup/*/kn$I -mindepth 1 -depth -type d -exec rmdir {} \; 2>/dev/null || true   # what a power loss left
for c in /sys/fs/cgroup/*/; do
  case $c in */unified/) continue;; esac
  mkdir -p $c/kn$I
  if [ -f $c/cpuset.cpus ]; then cat $c/cpuset.cpus >$c/kn$I/cpuset.cpus; cat $c/cpuset.mems >$c/kn$I/cpuset.mems; fi
done
cat >$X/etc-cni/10-bridge.conflist <<C
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.$I.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}},
 {"type": "bandwidth", "capabilities": {"bandwidth": true}}]}
C
cat >$X/containerd.toml <<C
version = 2
root = "$X/ctr"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$X/etc-cni"
C
cat >$X/kubelet.yaml <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /kn$I
failCgroupV1: false
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
failSwapOn: false
resolvConf: ""
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {nodefs.available: "1Mi", imagefs.available: "1Mi", memory.available: "50Mi"}
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 5s
nodeLeaseDurationSeconds: 8
syncFrequency: 10s
podPidsLimit: -1
enforceNodeAllocatable: [pods]
localStorageCapacityIsolation: false
runtimeRequestTimeout: 2m
C
cat >$X/proxy.yaml <<C
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ${PROXY_MODE:-nftables}
clientConnection: {kubeconfig: $D/conf/proxy.kubeconfig}
clusterCIDR: 10.244.0.0/16
hostnameOverride: kn$I
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
metricsBindAddress: 127.0.0.1:10249
healthzBindAddress: 0.0.0.0:10256
C
# what the kubelet would write into the host's kernel settings, it finds as it wants them
for kv in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  f=${kv%=*}; mkdir -p $X/sys/${f%/*}; echo ${kv#*=} >$X/sys/$f; done
cat >$X/init.sh <<C
set -e
hostname kn$I
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind $X/kubelet /var/lib/kubelet; mount --bind $X/cni-lib /var/lib/cni
mount --bind $X/log-pods /var/log/pods; mount --bind $X/log-containers /var/log/containers
for f in vm/overcommit_memory kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do mount --bind $X/sys/\$f /proc/sys/\$f; done
mount --make-rshared /
echo 1 >/proc/sys/net/ipv4/ip_forward
export PATH=$BIN:\$PATH
containerd -c $X/containerd.toml >$D/log/kn$I-containerd.log 2>&1 &
for i in \$(seq 300); do ctr -a /run/containerd/containerd.sock version >/dev/null 2>&1 && break; sleep 0.1; done
for t in $D/images/*.tar; do ctr -a /run/containerd/containerd.sock -n k8s.io images import \$t >/dev/null; done
kube-proxy --config $X/proxy.yaml >$D/log/kn$I-proxy.log 2>&1 &
kubelet --config $X/kubelet.yaml --kubeconfig $D/conf/kn$I.kubeconfig --root-dir /var/lib/kubelet --node-ip 10.78.0.1$I --hostname-override kn$I --node-labels=${LABELS:-rack=r$I} >$D/log/kn$I-kubelet.log 2>&1 &
wait
C
clock=   # each node has one of its own where the kernel has such: the second's is 5 s ahead of the first's
if unshare --time --fork --monotonic 1 true 2>/dev/null; then clock="--time --monotonic $((5 * I))"; fi
setsid nsenter --net=/run/netns/kn$I unshare $clock --uts --ipc --pid --fork --kill-child --mount --mount-proc bash $X/init.sh >$D/log/kn$I-init.log 2>&1 </dev/null &
echo $! >$D/pid/kn$I
END_OF_FILE
cat >$H/k8s-dns.sh <<'END_OF_FILE'
#!/usr/bin/env bash
# k8s-dns.sh FOLDER BIN: CoreDNS as a process of the host on 10.78.0.1:53, behind the Service kube-dns (10.96.0.10).
set -euo pipefail
D=$1 BIN=$2; export KUBECONFIG=$D/conf/admin.kubeconfig
cat >$D/conf/Corefile <<C
cluster.local:53 {
    bind 10.78.0.1
    errors
    kubernetes cluster.local {
        kubeconfig $D/conf/admin.kubeconfig
        ttl 1
    }
}
C
$BIN/kubectl apply -f - >/dev/null <<C
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.10, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns-host, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
endpoints: [{addresses: [10.78.0.1], conditions: {ready: true}}]
C
setsid $BIN/coredns -conf $D/conf/Corefile >$D/log/coredns.log 2>&1 </dev/null & echo $! >$D/pid/coredns
END_OF_FILE
cat >$H/k8s-down.sh <<'END_OF_FILE'
#!/usr/bin/env bash
# k8s-down.sh FOLDER: ends what k8s-up.sh started.
D=$1
for p in $D/pid/kn*; do kill -9 $(cat $p) 2>/dev/null; done
for p in $D/pid/*; do kill $(cat $p) 2>/dev/null; done
for _ in $(seq 50); do alive=; for p in $D/pid/*; do kill -0 $(cat $p) 2>/dev/null && alive=1; done; [ $alive ] || break; sleep 0.2; done
for p in $D/pid/*; do kill -9 $(cat $p) 2>/dev/null; done
sleep 0.5
for n in $(ip netns list | grep -o '^kn[0-9]*'); do ip netns del $n; done
for l in $(ip -br link | grep -o '^k8v[0-9]*'); do ip link del $l 2>/dev/null; done
ip link del k8br0 2>/dev/null
iptables -D FORWARD -i k8br0 -o k8br0 -j ACCEPT 2>/dev/null
for _ in 1 2 3; do find /sys/fs/cgroup/*/kn[0-9]* -depth -type d -exec rmdir {} \; 2>/dev/null; done
ls -d /sys/fs/cgroup/*/kn[0-9]* 2>/dev/null
rm -rf $D/kn* $D/etcd $D/pid/*
END_OF_FILE
chmod +x $H/*.sh

node_pid() { cat "$H/kube/pid/$1"; }
load() {   # what the Docker engine has, into every node that is up, and into those to come
  local file node
  [ $# -gt 0 ] || return 0
  file=$H/kube/images/engine.tar   # in one: what images share is there once
  docker save "$@" -o "$file"
  for node in "$H"/kube/pid/kn?; do
    [ -e "$node" ] || continue
    nsenter -t "$(pgrep -P "$(cat "$node")")" -m -n -p ctr -a /run/containerd/containerd.sock -n k8s.io images import "$file" >/dev/null
  done
}

restart_control_plane() {
  local pid argv
  pid=$(node_pid kube-apiserver)
  mapfile -d '' -t argv <"/proc/$pid/cmdline"
  kill -9 "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  sleep "${1:-5}"
  setsid "${argv[@]}" >>"$H/kube/log/kube-apiserver.log" 2>&1 </dev/null &
  echo $! >"$H/kube/pid/kube-apiserver"
}

built() {   # from a folder of packed binaries where there is one, else from Go modules
  if [ -n "${1:-}" ] && [ -e "$1/hyperkube.xz" ]; then
    for one in hyperkube coredns; do xz -dkc "$1/$one.xz" >"$H/bin/$one"; chmod +x "$H/bin/$one"; done
  else
    build
    coredns
  fi
}

shift
case "${1:-}" in
  deps) deps ;;
  build) built "${2:-}" ;;
  images) images; shift; load "$@" ;;
  up) "$H/k8s-up.sh" "$H/kube" "$H/bin" "${2:-2}"; echo "export KUBECONFIG=$H/kube/conf/admin.kubeconfig" ;;
  down) "$H/k8s-down.sh" "$H/kube" ;;
  load) shift; load "$@" ;;
  off) kill -9 "$(node_pid "$2")" ;;
  on) export PATH=$H/bin:$PATH; "$H/k8s-node.sh" "$H/kube" "$H/bin" "${2#kn}" ;;
  cut) ip link set "k8v${2#kn}" down ;;
  heal) ip link set "k8v${2#kn}" up ;;
  restart-control-plane) restart_control_plane "${2:-5}" ;;
  *) sed -n '5,8s/^#   //p' "$0" >&2; exit 2 ;;
esac
