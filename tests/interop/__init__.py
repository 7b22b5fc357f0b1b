"""
Tests against foreign programs that not every machine has.

``python -m tests.interop NAME ...`` (``tox -e interop -- NAME ...``) runs suites, and ``--list`` prints their
names.  ``--all`` builds the programs, runs every suite in a process of its own and prints a table; after an
interruption it goes on where it was.  A suite skips itself if its programs are missing.  The modules are
not called ``test_...``: a run of all tests must not skip any test, so it leaves these out.

:mod:`tests.interop.builds` is the list of the programs, with the commands that build them and the variables
that name them; ``--build NAME ...`` builds some.  Programs of Debian packages are in the same list.  Two more
are used if they are there:

* kube-apiserver.1.20 (``KUBE_APISERVER_OLDEST``), from its sources; its Go module lacks the generated OpenAPI
  document, and works without it;
* kcp (``KCP``), release 0.28 or later.  There is no recipe: 0.30.0 can be built by a main module with kcp's
  ``replace`` lines, but Go's module proxy did not serve one of them, kcp's fork of client-go, and later
  releases need a module that was never published.  Without kcp ``space_kcp`` runs its tests over
  kube-apiserver; the table says that it passed in part, and why.

Programs of ours that suites start are forks (:mod:`tests.flows.forks`): those of ``tests/flows/deployment.py``,
``Programs.run`` and ``programs.start``.  Started as users do are those of 0.2.0 (``rollback``, ``resume`` with
OLDER_RELEASE), commands that run once (``twisted-exec recording`` in ``s3``), and programs of benchmarks, whose memory
and CPU time are measured.

Suites, with what they need besides ``kubectl`` and ``etcd``, and about how long they take:

Clients
    * ``clients`` (kubectl.1.20, kubectl.newest, chromium, kube-rs-client, fabric8-client-0.jar and
      ``java``; 5 min): the table of clients, and every verb of the kubectls of this machine.
    * ``generated_clients`` (openapi-generator-cli.jar and ``java``, and ``go`` for the client in Go; 2 min): clients
      that openapi-generator makes of our OpenAPI documents.
    * ``kubelet_streams`` (kubelet-streams): the streaming server of kubelets and CRI runtimes.
    * ``mcp_clients`` (mcp-sdk, an environment with the Python package mcp, and mcp-modules, the TypeScript SDK and
      MCP Inspector for ``node``; 4 min): each tool of ``twisted-exec mcp`` and ``exec-mcp``.
    * ``ssh_clients`` (Debian's openssh-client and putty-tools, and ssh-clients, an environment with paramiko and
      ansible-core; openssh-newest; u-boot-qemu and qemu-system-x86 for BREAK; 2 min): what ``kubectl console --ssh-config`` prints
      opens consoles and runs commands with OpenSSH, plink, paramiko and Ansible's ``raw``.
    * ``ssh_door`` (as ``ssh_clients``, and ssh-audit; 3 min): the same clients at ``exec-sshd``, with a certificate or a
      key, and what ssh-audit warns of.

Bare metal
    * ``bare_metal`` (bmc-peers, metal-operator-mock; Debian's openipmi, ipmitool, openssh-server and libnss-wrapper;
      root for the port of IPMI; 3 min): servers behind sushy-emulator, metal-operator's mock, ``ipmi_sim``,
      OpenSSH with the shell of a BMC as its forced command, and websockify.

Packages
    * ``client_archive`` (archive-environment, krew; 2 min): the self-contained archive of the client is built,
      opens a console, and is installed by krew.

Screens
    * ``screens`` (XTERM_HEADLESS, ``node``, qemu-system-x86_64, and vim, less, tmux, htop, Debian's
      grub-common and grub-pc-bin, and a kernel as far as they are installed; 3 min): the terminal emulator
      beside xterm.js.  GRUB_MODULES is where the modules of GRUB are, and LINUX_KERNEL the kernel.

Recordings
    * ``s3`` (versitygw, and root for a full disk; 6 min, or ``AWAY_SECONDS``): recordings in a bucket; the
      runtime is killed while it uploads and signs, and the server is away, full, or refuses.

Web console
    * ``browser`` (chromium, and page/vendor: ``python -m twisted_exec.web.vendoring``; 8 min): reloads under
      load, 50 tabs, a line of 100 MB, and a computer that sleeps.
    * ``browser_certificate`` (chromium, firefox-esr, page/vendor, certutil and pk12util of Debian's
      libnss3-tools, and root for a policy): a login with a client certificate in the browser's store.
    * ``browser_engines`` (firefox-esr; WebKitWebDriver and Xvfb; page/vendor; 2 min): the page of
      ``twisted-exec web`` in the engines of Firefox and of Safari.
    * ``browser_oidc`` (chromium, firefox-esr, page/vendor, dex; 2 min): logins at an identity provider,
      with the configuration of ``docs/deploy/dex``, whose tokens expire while consoles are open.

Container image
    * ``image`` (runc, root, and IMAGE, the directory with the files of a built image; 3 min): programs of the
      container image, without root's rights and with a read-only root.  kubectl opens a console through an
      API server, a poollet and a runtime of the image, with certificates that the image makes.

Monitoring
    * ``monitoring`` (promtool, prometheus, nginx, curl; 1 min): the alert rules and the dashboard of
      ``docs/deploy``, with a Prometheus that scrapes an ``exec-standalone``.

API server
    * ``kube_apiserver`` (kube-apiserver; 5 min): kube-apiserver 1.33.1 still gives the recorded
      answers to writes.
    * ``oidc``, ``impersonation``, ``admission`` (kube-apiserver): our API server and a real one get the
      same tokens, impersonation headers, webhooks and policies, and give the same answers.
    * ``example_crd`` (kube-apiserver; 1 min): the definition and the controller of ``docs/examples`` in a package
      of their own.
    * ``newer_etcd`` (etcd-3.5): the contract of stores, and faults, on a later etcd than Debian's.
    * ``replicas`` (18 min): ``kill -9`` of the leader of two API servers on one etcd, fifty times or
      ``REPLICAS_KILLED`` times.
    * ``rights`` (kubectl.1.20, kubectl.newest, kube-apiserver, kube-controller-manager; 8 min): the
      rights of each role at a console with every kubectl, also behind a kube-apiserver
    * ``console_policies`` (kube-apiserver, kube-controller-manager; 1 min): reasons, approvals and labels
      behind kube-apiserver.
    * ``refusals`` (an older release, ironcore, onmetal; 1 min): writes the texts of refusals that
      ``twisted-exec doctor`` recognizes to ``tests/captures/refusals.json``.
    * ``aggregated_resume`` (kube-apiserver, kube-controller-manager; 2 min): consoles behind kube-apiserver
      go on when the poollet, our API server or kube-apiserver is killed, or one of our programs is stopped.
    * ``aggregated_web`` (kube-apiserver, kube-controller-manager; 1 min): ``twisted-exec web`` in front of
      kube-apiserver.
    * ``aggregated`` (10 min), ``attacker``, ``deployed``, ``host_faults`` (kube-apiserver,
      kube-controller-manager, and kubectl.1.20 and helm for tests of ``deployed``): our API server behind
      kube-apiserver as the manifests and the Helm chart deploy it: every kubectl, a read-only user, the
      granted rights, OpenAPI, a host that fails or retires a CA.
    * ``chart`` (helm; 10 s): the chart makes the objects of the kustomizations, and refuses values that make no
      sense.

Poollet and runtime
    * ``machinepoollet`` (machinepoollet): ironcore's poollet below our API server and above our
      runtime.
    * ``matrix`` (INTEROP_PROGRAMS, kube-apiserver, libvirtd, Debian's ovmf; 10 min): every chain of our
      programs and of ironcore's, onmetal's and libvirt-provider's.
    * ``ironcore_poollet`` (INTEROP_PROGRAMS, kube-apiserver, go; 1 min): our poollet under ironcore's
      API server, with the permissions that ironcore ships.

    * ``rollback`` (OLDER_RELEASE, Debian's qemu-system-x86 and u-boot-qemu; 5 min): the three programs of
      release 0.2.0 on our state, and ours again; then one of the three of 0.2.0 beside two of ours; then each
      program in turn changes its release, and changes it back, by a restart, while consoles are open.  OLDER_RELEASE is a directory from ``pip install --no-deps --target DIRECTORY`` of release 0.2.0.
    * ``resume``, ``page_resume``, ``rejoin`` and ``killed_runtime`` (root for faults of the network, and Debian's
      qemu-system-x86 for the last; 1 min each, or ``MOMENTS``): consoles of ``kubectl console`` and of
      stock kubectls under load in both directions, whose connections and programs fail at random
      moments. ``resume`` also has terminals, with the client of OLDER_RELEASE too.
    * ``killed_journals`` (no programs; 1 min, or ``MOMENTS``): ``kill -9`` of a runtime with nine terminals that
      print: each byte is in a journal, or in a gap.
    * ``restarts`` (no programs; 3 min, or ``RESTARTS`` and ``SESSIONS``): API server, poollet, runtime, all of them
      at once, and ``exec-standalone`` are stopped and killed again and again while users type and read.
    * ``quiet_sessions`` (no programs; 30 min, or ``QUIET_SECONDS``): 200 quiet sessions through API server,
      poollet and runtime while others attack them.

Node server (kube-apiserver and kubelet-node, unless noted)
    * ``leaf_trials`` (12 min): a command that is silent for ten minutes or ``SILENT_SECONDS``, and a
      restart of the node server below open sessions.
    * ``leaf_sync`` (90 s): Pods that a node server creates in a leaf.
    * ``leaf_nodes_kept``: Nodes that a node server maintains in a real root.
    * ``leaf_registry`` (kube-apiserver): rights of the registry of leaves, Secrets and Clusters that
      appear, change and disappear, and leaves that refuse the node server.
    * ``kubelet_double``: the shipped kubelet double answers as kubelet-node does.
    * ``leaf_older`` (kube-apiserver.1.20, kube-apiserver.newest; 1 min): a leaf of 1.20 below a root of
      1.36, and a leaf that is killed.
    * ``beside_kosmos`` (90 s): a program that writes Nodes, Pods and Clusters as Kosmos does.
    * ``leaf_containerd`` (kubelet, containerd, runc, busybox, as root; 5 min): kubectl with a real
      kubelet and containerd in the leaf, also recorded: each recording is verified with the CA alone.
    * ``leaf_figures`` (metrics-server; 1 min): ``kubectl top`` in the root.

Spaces
    * ``space_local`` (150 s): the contract of providers for local spaces, with real processes.
    * ``space_clusterprofile`` (kube-apiserver, kube-controller-manager; 1 min),
      ``space_kcp`` (the same, and kcp; 8 min), ``space_kind`` (kind and a played docker; 30 s),
      ``space_kubeflex`` (the same as the first, with a played manager, and with kubeflex-manager;
      2 min each): the contract for the other providers.
    * ``space_clients`` (kube-apiserver; 1 min): the client of Spaces, and kubectl with
      ``twisted-exec space exec-credential``.
    * ``spaces_crds`` (kube-apiserver; 1 min): our CustomResourceDefinitions accept and refuse what our
      API server does, and a manager works with the rights of the manifests.
    * ``spaces_kept`` (kube-apiserver, kube-controller-manager; 1 min): a Space manager over a real
      cluster.

Programs that write documentation: ``python -m tests.interop.leaf_table`` (table of a leaf's clients),
``python -m tests.interop.leaf_recorded`` (captures of what roots send),
``python -m tests.interop.space_table`` (table of the providers' contract).
"""
