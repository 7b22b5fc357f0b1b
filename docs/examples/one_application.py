"""
API server, poollet and runtime inside one Twisted application.

    twistd -ny docs/examples/one_application.py
    export KUBECONFIG=lab-state/admin.kubeconfig
    kubectl apply -f docs/examples/echo_machine.yaml && kubectl console echo

These are the services of the twistd programs.  They get their collaborators as objects, so you can
pass your own.  Here the runtime is that of echo_runtime.py, and the poollet calls it directly,
without gRPC.  LAB_STATE is the directory for all state, LAB_PORT the API server's port, and
LAB_LOGINS the directory of own_authenticator.py, if you want its logins.
"""

from __future__ import annotations

import os
import sys

from twisted.application.service import Application, IServiceCollection
from twisted.internet import reactor
from twisted.internet.defer import gatherResults
from twisted.logger import Logger

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from echo_runtime import echo_class
from own_authenticator import TokenAuthenticator

from twisted_exec.clients import ClientConfig, KubeClient, Material
from twisted_exec.interfaces import IAPIServer, IMachineRuntime, IPoollet
from twisted_exec.machines import RuntimeHost, RuntimeSettings
from twisted_exec.services import (
    DEFAULT_AUDIT_POLICY,
    FORWARDING_USER,
    APIServer,
    APIServerSettings,
    Identities,
    JSONLinesAudit,
    Poollet,
    PoolletSettings,
    create_pki,
    read_file,
    report_start,
    write_kubeconfig,
)
from twisted_exec.stores import MemoryStorage

STATE = os.path.abspath(os.environ.get("LAB_STATE", "lab-state"))
PORT = int(os.environ.get("LAB_PORT", "6444"))
URL = f"https://127.0.0.1:{PORT}"
POOL = "lab"

# New certificates at each start, for the services and for the administrator.
pki = create_pki(os.path.join(STATE, "pki"), replace=True)
serving, forwarding = pki.issue_apiserver(["127.0.0.1"], replace=True)
poollet_serving, poollet_client = pki.issue_poollet(POOL, ["127.0.0.1"], replace=True)
admin = pki.issue_user("admin", ["system:masters"], replace=True)

logins = os.environ.get("LAB_LOGINS")
authenticators = [TokenAuthenticator(logins, reactor)] if logins else []
audit = JSONLinesAudit(os.path.join(STATE, "audit.jsonl"))

api_server = APIServer(
    APIServerSettings(
        listen=f"tcp:{PORT}:interface=127.0.0.1",
        certificate=serving.certificate,
        key=serving.key,
        client_ca=pki.client_ca,
        poollet_certificate=forwarding.certificate,
        poollet_key=forwarding.key,
        poollet_ca=pki.serving_ca,
        audit_policy=DEFAULT_AUDIT_POLICY,
        identities=Identities(authenticators=authenticators),
    ),
    MemoryStorage(),  # or SQLiteStorage(path, reactor), or your own IStorage
    audit,
    reactor,
)

# The runtime also serves the machine runtime interface, for other poollets on this host.
machines = RuntimeHost(
    RuntimeSettings(
        classes=[echo_class()],
        state_directory=os.path.join(STATE, "runtime"),
        iri_target=f"unix://{STATE}/iri/iri.sock",  # at most 107 bytes
    ),
    audit,
    reactor,
)

lab_poollet = Poollet(
    PoolletSettings(
        pool=POOL,
        provider_id=f"example://{POOL}",
        certificate=poollet_serving.certificate,
        key=poollet_serving.key,
        listen="tcp:0:interface=127.0.0.1",
        client_ca=pki.client_ca,
        requestheader_ca=pki.forwarding_ca,
        requestheader_names=[FORWARDING_USER],
        addresses=[("InternalIP", "127.0.0.1")],
    ),
    KubeClient(
        ClientConfig(
            URL,
            ca=Material(path=pki.serving_ca),
            certificate=Material(path=poollet_client.certificate),
            key=Material(path=poollet_client.key),
        ),
        reactor,
    ),
    machines,
    audit,
    reactor,
)

write_kubeconfig(
    os.path.join(STATE, "admin.kubeconfig"),
    server=URL,
    ca_pem=read_file(pki.serving_ca),
    certificate_pem=read_file(admin.certificate),
    key_pem=read_file(admin.key),
    user="admin",
    replace=True,
)
# Applications should rely on the interfaces, not on the classes.
assert IAPIServer.providedBy(api_server) and IPoollet.providedBy(lab_poollet)
assert IMachineRuntime.providedBy(machines)

application = Application("lab")
services = (api_server, machines, lab_poollet)
for service in services:
    service.setServiceParent(IServiceCollection(application))
ready = gatherResults([service.when_ready() for service in services], consumeErrors=True)
ready.addCallback(lambda _: Logger("lab").info("ready: {url}", url=URL))
report_start(ready, "lab", reactor)  # a failure ends the program with one line and exit code 1
