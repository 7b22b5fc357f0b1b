"""
Peers that must be built from Go: ``tox -e interop`` tries those whose programs it finds.

The modules have no ``test_`` in their names, so that a run of all tests, which may skip
nothing, passes them over.

* ``newest_kubectl``: a kubectl of the newest release, as ``kubectl.newest`` on ``PATH`` or
  where ``KUBECTL_NEWEST`` says.  To build it, outside of the checkout, with Go::

      go mod init kubectl.newest
      # main.go: cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()), of
      # k8s.io/component-base/cli and k8s.io/kubectl/pkg/cmd
      go get k8s.io/kubectl@v0.37.2 k8s.io/component-base@v0.37.2 && go mod tidy
      v=k8s.io/component-base/version
      go build -ldflags "-X $v.gitVersion=v1.37.2 -X $v.gitMajor=1 -X $v.gitMinor=37" .
* ``kubelet_streams``: the streaming server that kubelets and CRI runtimes are made of, as
  ``kubelet-streams`` on ``PATH`` or where ``KUBELET_STREAMS`` says.  To build it::

      cd tests/interop/kubelet && go build -o WHERE/kubelet-streams .
"""
