#!/bin/sh
# What stands in for the program kind: its contract as v0.32.0 has it (standard output and error, exit codes,
# messages), over files of a directory, $FAKE_KIND.  In sh, which begins in no time, as it is run often.
#
# clusters/NAME/ is a cluster: state (booting or ready), token, uid, config.
# mode holds words that say how it behaves: down (no docker), nonsense, stall, hold (clusters are listed and get no
# further), fail (making one fails), lock (kubeconfigs cannot be locked), late (making one begins later).
# calls gets a line for each run.  server has three lines: URLs from outside and inside, and a CA as base64.

here=$FAKE_KIND
echo "$*" >> "$here/calls"

look() {
    modes=
    [ -f "$here/mode" ] && read -r modes < "$here/mode"
}

has() {
    case " $modes " in *" $1 "*) return 0 ;; esac
    return 1
}

fail() {
    printf 'ERROR: %s\n' "$1" >&2
    exit 1
}

# As kind locks a kubeconfig: whoever finds the lock does not wait.
locked() {
    if has lock || [ -e "$kubeconfig.lock" ]; then
        fail "failed to lock config file: open $kubeconfig.lock: file exists"
    fi
}

create() {
    while has late; do
        sleep 0.02
        look
    done
    [ -d "$there" ] &&
        fail "failed to create cluster: node(s) already exist for a cluster with the name \"$name\""
    echo "Creating cluster \"$name\" ..." >&2
    read -r token < /proc/sys/kernel/random/uuid
    read -r uid < /proc/sys/kernel/random/uuid
    new="$here/new-$$"
    mkdir "$new"
    echo "$token" > "$new/token"
    echo "$uid" > "$new/uid"
    echo "$image" > "$new/image"
    echo booting > "$new/state"
    cat "$config" > "$new/config"
    mv -T "$new" "$there" 2> /dev/null ||
        fail "failed to create cluster: node(s) already exist for a cluster with the name \"$name\""
    if has fail; then
        rm -r "$there"
        fail "failed to create cluster: command \"docker run --name $name-control-plane\" failed with error: exit status 125

Command Output: no space left on device"
    fi
    while look && has hold; do
        sleep 0.02
        [ -d "$there" ] || fail "failed to create cluster: failed to init node with kubeadm"
    done
    [ -d "$there" ] && echo ready > "$there/state"
    locked
    echo "current-context: kind-$name" > "$kubeconfig"
    echo "Set kubectl context to \"kind-$name\"" >&2
}

get_kubeconfig() {
    [ -d "$there" ] || fail "could not locate any control plane nodes for cluster named '$name'. Use the --name option to select a different cluster"
    read -r state < "$there/state"
    [ "$state" = ready ] || fail "failed to get cluster internal kubeconfig: command \"docker exec --privileged $name-control-plane cat /etc/kubernetes/admin.conf\" failed with error: exit status 1"
    read -r token < "$there/token"
    { read -r url; read -r inside; read -r ca; } < "$here/server"
    [ -n "$internal" ] && url=$inside
    cat <<END
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: $ca
    server: $url/$name
  name: kind-$name
contexts:
- context:
    cluster: kind-$name
    user: kind-$name
  name: kind-$name
current-context: kind-$name
kind: Config
users:
- name: kind-$name
  user:
    token: $token
END
}

look
[ -n "$KUBECONFIG" ] && fail "KUBECONFIG must not be passed on"
while has stall; do
    sleep 0.05
    look
done
if has nonsense; then
    echo "Usage: kind of a different program"
    exit 0
fi
if has down; then
    fail "failed to list clusters: command \"docker ps -a --filter label=io.x-k8s.kind.cluster\" failed with error: exit status 1

Command Output: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
fi
command="$1 $2"
shift 2
name= config= kubeconfig= image= internal=
for option; do
    case $option in
        --name=*) name=${option#*=} ;;
        --config=*) config=${option#*=} ;;
        --kubeconfig=*) kubeconfig=${option#*=} ;;
        --image=*) image=${option#*=} ;;
        --internal) internal=yes ;;
        *) fail "unknown flag: $option" ;;
    esac
done
there="$here/clusters/$name"
case $command in
    "get clusters")
        found=
        for each in "$here"/clusters/*; do
            [ -d "$each" ] || continue
            found=yes
            echo "${each##*/}"
        done
        [ -n "$found" ] || echo "No kind clusters found." >&2
        ;;
    "get kubeconfig") get_kubeconfig ;;
    "create cluster") create ;;
    "delete cluster")
        echo "Deleting cluster \"$name\" ..." >&2
        locked
        if [ -d "$there" ]; then
            mv "$there" "$here/old-$$" && rm -r "$here/old-$$"
            echo "Deleted nodes: [\"$name-control-plane\"]" >&2
        fi
        ;;
    *) fail "unknown command \"$command\" for \"kind\"" ;;
esac
exit 0
