#!/bin/sh
# What stands in for docker under the real kind: it answers what kind v0.32.0 asks for a node, over files of a
# directory, $FAKE_KIND, as tests/spacemanager/providers/kind/fake_kind.sh has them.  A node is one for each cluster, and
# its API server is the test's; admin.conf, if it is there, is that of a real one.
#
# mode holds words that say how it behaves: down, nonsense, stall, hold (kubeadm init does not end), fail (it fails).

here=$FAKE_KIND

look() {
    modes=
    [ -f "$here/mode" ] && read -r modes < "$here/mode"
}

has() {
    case " $modes " in *" $1 "*) return 0 ;; esac
    return 1
}

fail() {
    printf '%s\n' "$1" >&2
    exit 1
}

names() {
    for each in "$here"/clusters/*; do
        [ -d "$each" ] && echo "${each##*/}"
    done
}

list() {
    has nonsense && {
        echo "Usage: docker of a different program"
        return
    }
    case $* in
        *"label=io.x-k8s.kind.cluster="*)
            wanted=${*#*label=io.x-k8s.kind.cluster=}
            wanted=${wanted%% *}
            [ -d "$here/clusters/$wanted" ] && echo "$wanted-control-plane"
            ;;
        *) names ;;
    esac
}

run() {
    name=
    [ "$1" = --name ] && name=${2%-control-plane}
    new="$here/new-$$"
    mkdir "$new"
    cat /proc/sys/kernel/random/uuid > "$new/token"
    cat /proc/sys/kernel/random/uuid > "$new/uid"
    echo booting > "$new/state"
    echo '{"nodes": [{}]}' > "$new/config"
    mv -T "$new" "$here/clusters/$name" 2> /dev/null || {
        rm -r "$new"
        fail "docker: Error response from daemon: Conflict. The container name \"/$name-control-plane\" is already in use."
    }
    echo 4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945
}

inspect() {
    for node; do :; done
    name=${node%-control-plane}
    case $* in
        *--type=image*) echo '[{}]' ;;
        *) [ -d "$here/clusters/$name" ] || fail "Error: No such object: $node" ;;
    esac
    case $* in
        *io.x-k8s.kind.role*) echo control-plane ;;
        *IPAddress*) echo "172.18.0.2,fc00::2" ;;
        *desktop.docker.io*) echo ;;
        *HostPort*)
            read -r url < "$here/server"
            printf '127.0.0.1\t%s\n' "${url##*:}"
            ;;
    esac
}

admin_conf() {
    read -r state < "$there/state"
    [ "$state" = booting ] && fail "cat: /etc/kubernetes/admin.conf: No such file or directory"
    [ -f "$here/admin.conf" ] && {
        cat "$here/admin.conf"
        return
    }
    read -r token < "$there/token"
    { read -r url; read -r inside; read -r ca; } < "$here/server"
    cat <<END
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: $ca
    server: https://$1:6443
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: kubernetes-admin
  name: kubernetes-admin@kubernetes
current-context: kubernetes-admin@kubernetes
kind: Config
preferences: {}
users:
- name: kubernetes-admin
  user:
    token: $token
END
}

# Nodes bear the labels that kubelet is told to give them.
init() {
    label=$(sed -n '/name: node-labels/{n;s/^ *value: "*\([^"=]*\)=\([^"]*\)"*$/{"\1": "\2"}/p}' "$there/kubeadm.conf" | head -n 1)
    echo "{\"nodes\": [{\"labels\": ${label:-"{}"}}]}" > "$there/config"
    while look && has hold; do
        sleep 0.05
        [ -d "$there" ] || fail "the node is gone"
    done
    has fail && fail "error execution phase wait-control-plane: no space left on device"
    echo ready > "$there/state"
}

execute() {
    while :; do
        case $1 in
            --privileged | -i) shift ;;
            -e) shift 2 ;;
            *) break ;;
        esac
    done
    node=$1
    there="$here/clusters/${node%-control-plane}"
    shift
    [ -d "$there" ] || fail "Error response from daemon: No such container: $node"
    case $* in
        "cat /kind/version") echo v1.36.1 ;;
        "cat /etc/kubernetes/admin.conf") admin_conf "$node" ;;
        "cat /kind/manifests/"*) echo "# nothing" ;;
        "cp /dev/stdin /kind/kubeadm.conf") cat > "$there/kubeadm.conf" ;;
        "cp /dev/stdin"* | "kubectl "*) cat > /dev/null ;;
        "kubeadm init"*) init ;;
    esac
}

echo "docker $*" >> "$here/calls"
look
while has stall; do
    sleep 0.05
    look
done
[ "$1" = -v ] && {
    echo "Docker version 28.0.0, build 0"
    exit 0
}
has down && fail "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
command=$1
shift
case $command in
    info)
        case $* in
            *DriverStatus*) echo '[["Backing Filesystem","extfs"]]' ;;
            *Driver*) echo overlay2 ;;
            *SecurityOptions*) echo "'[]'" ;;
            *) echo '{"CgroupDriver":"systemd","CgroupVersion":"2","MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"SecurityOptions":[]}' ;;
        esac
        ;;
    ps) list "$*" ;;
    network)
        case $* in
            ls*) echo kind ;;
            *) echo ;;
        esac
        ;;
    run) run "$@" ;;
    logs) echo "[  OK  ] Reached target Multi-User System." ;;
    inspect) inspect "$@" ;;
    exec) execute "$@" ;;
    rm)
        for node; do
            name=${node%-control-plane}
            [ "$name" != "$node" ] && [ -d "$here/clusters/$name" ] || continue
            mv "$here/clusters/$name" "$here/old-$$" && rm -r "$here/old-$$"
        done
        ;;
    *) fail "docker: '$command' is not a docker command." ;;
esac
exit 0
