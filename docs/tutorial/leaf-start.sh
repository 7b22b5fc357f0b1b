# Create certificates for a root and a leaf cluster, and start both API servers: sh leaf-start.sh
set -e
servers=
# A shell script's background programs ignore Ctrl-C, so this script stops them; $! is the last of them.
trap 'test -z "$!" || kill $servers $!; wait; exit 130' INT TERM
for cluster in root:6443 leaf:6444; do
  name=${cluster%:*} port=${cluster#*:}
  if [ ! -d $name ]; then
    twisted-exec pki init $name
    twisted-exec pki apiserver $name --name 127.0.0.1
    twisted-exec pki runtime $name --runtime kubelet --name 127.0.0.1
    twisted-exec pki user $name --user kube-apiserver-kubelet-client --group system:masters
    twisted-exec pki user $name --user admin --group system:masters \
      --server https://127.0.0.1:$port --kubeconfig $name/admin
  fi
  twistd -n --pidfile= exec-apiserver --listen=tcp:$port:interface=127.0.0.1 \
    --tls-cert-file=$name/apiserver.crt --tls-private-key-file=$name/apiserver.key \
    --client-ca-file=$name/client-ca.crt \
    --machinepoollet-client-certificate=$name/apiserver-forwarding.crt \
    --machinepoollet-client-key=$name/apiserver-forwarding.key \
    --machinepoollet-certificate-authority=$name/ca.crt \
    --kubelet-client-certificate=$name/user-kube-apiserver-kubelet-client.crt \
    --kubelet-client-key=$name/user-kube-apiserver-kubelet-client.key \
    --kubelet-certificate-authority=$name/ca.crt \
    --storage=memory --audit-log=$name/audit.jsonl &
  servers="$servers $!"
done
wait
