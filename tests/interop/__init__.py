"""
Peers that not every machine has: ``tox -e interop`` tries those whose programs it finds.

The modules have no ``test_`` in their names, so that a run of all tests, which may skip
nothing, passes them over.

* ``clients``: the rows of two more clients in the table of the documentation.  A kubectl of
  the newest release, as ``kubectl.newest`` on ``PATH`` or where ``KUBECTL_NEWEST`` says; and
  ``chromium``, as Debian has it.  To build the former::

      cd tests/interop/kubectl && v=k8s.io/component-base/version && go build -ldflags \
          "-X $v.gitVersion=v1.37.2 -X $v.gitMajor=1 -X $v.gitMinor=37" -o WHERE/kubectl.newest .

* ``kubelet_streams``: the streaming server that kubelets and CRI runtimes are made of, as
  ``kubelet-streams`` on ``PATH`` or where ``KUBELET_STREAMS`` says.  To build it::

      cd tests/interop/kubelet && go build -o WHERE/kubelet-streams .

* ``leaf_trials``: what users of a leaf cluster live through: a command that is silent for ten
  minutes (or as long as ``SILENT_SECONDS`` says), a restart of the node server below their sessions,
  for twelve minutes in all; with two kube-apiservers as below, and a kubelet of the same parts, as
  ``kubelet-node`` on ``PATH`` or where ``KUBELET_NODE`` says.  To build it::

      cd tests/interop/kubelet && go build -o WHERE/kubelet-node ./node

  ``python -m tests.interop.leaf_table`` writes the table of its clients into the documentation, and
  ``python -m tests.interop.leaf_recorded`` records what roots send.  Both also want kubectl 1.20
  (Debian's, as ``kubectl.1.20`` or where ``KUBECTL_OLDEST`` says), and a newer kube-apiserver, as
  ``kube-apiserver.newest`` or where ``KUBE_APISERVER_NEWEST`` says::

      cd tests/interop/apiserver_newest && v=k8s.io/component-base/version && go build -ldflags \
          "-X $v.gitVersion=v1.36.3 -X $v.gitMajor=1 -X $v.gitMinor=36" -o WHERE/kube-apiserver.newest .

  A kube-apiserver 1.20 is tried where one is found, as ``kube-apiserver.1.20`` or where
  ``KUBE_APISERVER_OLDEST`` says.  (What its module lacks is the generated OpenAPI document; without
  that document one can be built of it.)

* ``leaf_sync``: Pods that a node server makes in a leaf, with the same programs, for a minute and a
  half; and ``kubelet_double``: the kubelet that is shipped for tests, asked the same as
  ``kubelet-node``, for a second.

* ``leaf_older``: a leaf of 1.20 below a root of 1.36, and one that is killed; with the programs of
  ``leaf_table``, for a minute.

* ``beside_kosmos``: the node server beside a program that writes Nodes and Pods as Kosmos's does, with
  Kosmos's Cluster objects, for a minute and a half; with the programs of ``leaf_trials``.

* ``leaf_containerd``: all that kubectls do, with a real kubelet and a real containerd in the leaf, for two
  minutes and a half; as root, with the programs of ``leaf_trials``, containerd, runc and busybox as Debian has
  them, and a kubelet as ``kubelet`` on ``PATH`` or where ``KUBELET`` says.  To build it::

      cd tests/interop/kubelet_whole && v=k8s.io/component-base/version && go build -ldflags \
          "-X $v.gitVersion=v1.33.1 -X $v.gitMajor=1 -X $v.gitMinor=33" -o WHERE/kubelet .

* ``leaf_figures``: ``kubectl top`` in such a root, for a minute; with a metrics-server besides, as
  ``metrics-server`` on ``PATH`` or where ``METRICS_SERVER`` says.  To build it::

      go install sigs.k8s.io/metrics-server/cmd/metrics-server@v0.7.2

* ``space_local``: the contract of providers of spaces for local ones, with the real processes, for two minutes and
  a half.  ``python -m tests.interop.space_table`` tries this contract with all providers whose programs are found,
  and those that were recorded, and writes the table of the documentation.

* ``kube_apiserver``: kube-apiserver 1.33.1, whose answers to writes are recorded, is asked
  again, for five minutes; with ``etcd``, as ``kube-apiserver`` on ``PATH`` or where
  ``KUBE_APISERVER`` says.  To build it::

      cd tests/interop/apiserver && v=k8s.io/component-base/version && go build -ldflags \
          "-X $v.gitVersion=v1.33.1 -X $v.gitMajor=1 -X $v.gitMinor=33" -o WHERE/kube-apiserver .

* ``space_clusterprofile``: the adaptor of ClusterProfiles over a kube-apiserver and a kube-controller-manager as
  below, for a minute.

* ``space_kcp``: the adaptor of kcp over kcp itself, as ``kcp`` on ``PATH`` or where ``KCP`` says, and the accounts that it
  makes over a kube-apiserver and a kube-controller-manager as below.  (kcp 0.32.3 cannot be built from its modules alone:
  one of those that it needs was never published.)

* ``space_kind``: the adaptor of kind over kind itself, for half a minute; a played docker serves it, with a
  kube-apiserver as below once.  As ``kind`` on ``PATH`` or where ``KIND`` says.  To build it::

      GOBIN=WHERE go install sigs.k8s.io/kind@v0.32.0

* ``space_kubeflex``: the adaptor of KubeFlex over a kube-apiserver and a kube-controller-manager as below, for
  five minutes with a manager of KubeFlex that is played; and with its own, as ``kubeflex-manager`` on
  ``PATH`` or where ``KUBEFLEX_MANAGER`` says.  To build it, as ``WHERE/manager``::

      GOBIN=WHERE go install github.com/kubestellar/kubeflex/cmd/manager@v0.9.3

* ``space_clients``: the space-aware client, and kubectls with ``twisted-exec space exec-credential``, with a
  kube-apiserver as above on both sides, for a minute.

* ``spaces_crds``: our CustomResourceDefinitions of Spaces accept and refuse what our API server does, and a
  manager of Spaces does its work with the rights of the manifests; for a minute, with the programs of
  ``kube_apiserver``.

* ``spaces_kept``: a Space Manager over a real cluster, for a minute; with the programs of ``aggregated``.

* ``newer_etcd``: the store's contract and its faults in an etcd of a later release than Debian's, as
  ``etcd-3.5`` on ``PATH`` or where ``ETCD_NEWER`` says.  To build it::

      cd tests/interop/etcd && go build -o WHERE/etcd-3.5 .

* ``machinepoollet``: ironcore's own poollet under our API server and over our runtime, as
  ``machinepoollet`` on ``PATH`` or where ``MACHINEPOOLLET`` says.  To build it::

      go install github.com/ironcore-dev/ironcore/poollet/machinepoollet/cmd/machinepoollet@v0.5.0

* ``matrix``: every chain of our programs and of ironcore's, onmetal's and libvirt-provider's, for
  about ten minutes; with kube-apiserver as above, ``etcd`` and ``libvirtd``.  Their programs are
  where ``INTEROP_PROGRAMS`` says, a directory each.  To build them (their sums are in no public
  data base)::

      for one in ironcore onmetal libvirt; do (cd tests/interop/$one && CGO_ENABLED=0 \\
          GONOSUMDB='github.com/ironcore-dev/*,github.com/onmetal/*' \\
          GOBIN=WHERE/$one go install tool); done

* ``replicas``: ``kill -9`` of one of two API servers on one etcd, fifty times (or as often as
  ``REPLICAS_KILLED`` says), for about four minutes; with ``etcd``.

* ``aggregated``, ``attacker`` and ``deployed``: our API server behind that kube-apiserver, with a
  kube-controller-manager, as the manifests of the documentation deploy it: every kubectl, for
  ten minutes; whoever may look on only; and what the manifests give to whom.  The controllers as ``kube-controller-manager`` on ``PATH`` or
  where ``KUBE_CONTROLLER_MANAGER`` says.  To build it::

      cd tests/interop/controller_manager && v=k8s.io/component-base/version && go build -ldflags \
          "-X $v.gitVersion=v1.33.1 -X $v.gitMajor=1 -X $v.gitMinor=33" \
          -o WHERE/kube-controller-manager .
"""
