"""
Typical kubectl commands and their expected output.

Every row runs with every kubectl, in a namespace of its own. ``{n}`` stands for that namespace, and
is also part of the names of objects without a namespace.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass

from cryptography.hazmat.primitives.serialization import Encoding

from tests.apiserver.signing.test_poollets import request


@dataclass(frozen=True)
class Row:
    """
    One command.

    :param line: its words, separated by spaces; single quotes keep spaces within a word.
    :param shows: regular expressions that its output must match, in any order.
    :param code: its exit code; ``None`` where versions differ.
    :param stdin: its standard input.
    :param since: the first minor version of kubectl with this command.
    :param until: the last minor version of kubectl with this command.
    :param editor: a ``sed`` script that replaces the interactive editor.
    :param starts: a name; the command runs until the row that ``ends`` this name.
    :param ends: the name of a started command to wait for first.
    :param once: runs with the newest kubectl only, because only the server's answer matters.
    :param keeps: a word that later input replaces with the output of this command.
    """

    line: str
    shows: tuple[str, ...] = ()
    code: int | None = 0
    stdin: str = ""
    since: int = 0
    until: int = 999
    editor: str = ""
    starts: str = ""
    ends: str = ""
    keeps: str = ""
    once: bool = False


def row(line: str, *shows: str, **more: object) -> Row:
    """Return a row, with its patterns as arguments."""
    return Row(line, shows, **more)  # type: ignore[arg-type]


MACHINE = """
apiVersion: compute.ironcore.dev/v1alpha1
kind: Machine
metadata: {name: a, labels: {tier: web}}
spec:
  machineClassRef: {name: small}
  machinePoolRef: {name: pool-a}
"""
OFF = MACHINE + "  power: 'Off'\n"
BAD = MACHINE + "  pwoer: 'Off'\n"
SECOND = MACHINE.replace("name: a,", "name: b,").replace("web", "db")
STATUS = """
apiVersion: compute.ironcore.dev/v1alpha1
kind: Machine
metadata: {name: a}
spec: {machineClassRef: {name: small}}
status: {state: Shutdown}
"""
POOL = "apiVersion: compute.ironcore.dev/v1alpha1\nkind: MachinePool\nmetadata: {name: NAME}\n"
CLASS = """
apiVersion: compute.ironcore.dev/v1alpha1
kind: MachineClass
metadata: {name: NAME}
capabilities: {cpu: "2", memory: 4Gi}
"""
EVENT = """
apiVersion: v1
kind: Event
metadata: {name: a.1, namespace: NAME}
involvedObject:
  apiVersion: compute.ironcore.dev/v1alpha1
  kind: Machine
  namespace: NAME
  name: a
  uid: UID
type: Warning
reason: Tripped
message: over a cable
count: 3
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:01:00Z"
source: {component: table}
"""
RBAC = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NAME}
rules: [{apiGroups: [compute.ironcore.dev], resources: [machines], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: ada, apiGroup: rbac.authorization.k8s.io}]
"""
READY = (
    '{"status":{"state":"Running","conditions":[{"type":"Ready","status":"True",'
    '"reason":"Running","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'
)


def signing_request(name: str) -> str:
    """Return a certificate signing request for a signer that does not exist."""
    pem = request().public_bytes(Encoding.PEM)
    return f"""
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {name}}}
spec:
  request: {b64encode(pem).decode()}
  signerName: example.com/table
  usages: [digital signature, client auth]
"""


SERVER = (
    row("version", r"Server Version: .*v1\.\d+\.0\+twisted-exec"),
    row("cluster-info", r"control plane.* is running at .*https://127\.0\.0\.1:\d+"),
    row("config view", r"current-context: ", once=True),
    row("get --raw /", r'"/apis/compute.ironcore.dev/v1alpha1"', once=True),
    row("get --raw /healthz", r"^ok$", once=True),
    row("get --raw /livez/ping", r"^ok$", once=True),
    row("get --raw /readyz?verbose", r"\[\+\]storage ok", r"readyz check passed", once=True),
    row("get --raw /version", r'"gitVersion":', once=True),
    row("get --raw /openapi/v3", r"apis/compute.ironcore.dev/v1alpha1\?hash=", once=True),
    row("get --raw /nothing", r"NotFound", code=1, once=True),
    row("api-versions", r"^compute.ironcore.dev/v1alpha1$", r"^v1$"),
    row(
        "api-resources",
        r"machines +compute.ironcore.dev/v1alpha1 +true +Machine",
        r"events +ev +v1 +true +Event",
        r"namespaces +ns +v1 +false +Namespace",
    ),
    row(
        "api-resources -o wide",
        r"machines .*create,delete,deletecollection,get,.*watch +all",
        once=True,
    ),
    row(
        "api-resources -o name --namespaced=false",
        r"^machinepools.compute.ironcore.dev$",
        once=True,
    ),
    row(
        "api-resources --verbs=create --api-group=authorization.k8s.io", r"AccessReview", once=True
    ),
    row("api-resources --categories=all --no-headers", r"machines ", once=True),
    row("api-resources --sort-by=kind --cached=false", r"ClusterRole", once=True),
    row("explain machine", r"KIND: +Machine", r"spec\s+<.*> .*-?required-?"),
    row(
        "explain machine --recursive",
        r"machineClassRef\s+<Object>",
        r"lastTransitionTime",
        once=True,
    ),
    row("explain machine.spec.power", r"power is On or Off\."),
    row("explain machine.metadata.labels", r"labels <map\[string\]string>", once=True),
    row("explain pools.nothing", code=1, once=True),
    row("explain event.involvedObject", r"fieldPath", once=True),
    row("explain namespace.status", r"phase", once=True),
    row("explain clusterrole.rules.verbs", r"verbs <\[\]string>", once=True),
    row("explain machine.spec.volumes.localDisk", r"sizeLimit\s+<Quantity>"),
    row("explain machineclass.capabilities", r"capabilities <map\[string\]Quantity>", once=True),
    row(
        "explain machine --api-version=compute.ironcore.dev/v1alpha1",
        r"VERSION: +v1alpha1",
        once=True,
    ),
    row("auth whoami", r"Username +admin", since=28),
    row("auth whoami -o yaml", r"username: admin", since=28, once=True),
    row("auth can-i create machines/exec", r"^yes"),
    row("auth can-i get machines/log --as=ada", r"^no", code=1, once=True),
    row("auth can-i '*' '*' --all-namespaces", r"^yes", once=True),
    row("auth can-i get /metrics --quiet"),
    row("auth can-i --list", r"\*\.\*"),
    row("auth can-i --list --as=ada", r"selfsubjectaccessreviews.authorization.k8s.io", once=True),
    row("get nonsense", r"the server doesn't have a resource type", code=1),
    row("top node", r"Metrics API not available", code=1, once=True),
    row("get services -A", r"No resources found", once=True),
    row("create service clusterip x --tcp=80", r"not allowed", code=1, once=True),
)

OBJECTS = (
    row("get machines", r"No resources found in {n} namespace"),
    row("create -f -", r'unknown field "spec.pwoer"', code=1, stdin=BAD),
    row("create -f - --validate=warn --dry-run=server", r"Warning: .*pwoer", stdin=BAD),
    row("create -f - --validate=false --dry-run=server -o name", r"^machine.*/a", stdin=BAD),
    row("create -f - --dry-run=client -o name", r"^machine.compute.ironcore.dev/a", stdin=MACHINE),
    row("create -f - --dry-run=server -o yaml", r"uid: ", r'power: "On"', stdin=MACHINE),
    row("get machine a", r"NotFound", code=1),
    row("wait --for=create machine/a --timeout=60s", since=31, starts="created"),
    row("create -f -", r"machine.compute.ironcore.dev/a created", stdin=MACHINE),
    row("create -f -", r"AlreadyExists", code=1, stdin=MACHINE),
    row(
        "get machine a",
        r"a +small +<none> +pool-a +Pending +<unknown> +<none> +\d+s",
        ends="created",
    ),
    row("get machine a -o wide --no-headers", r"^a +small", once=True),
    row("get machine a -o yaml", r"machinePoolRef:\n +name: pool-a"),
    row("get machine a -o json", r'"power": "On"'),
    row("get machine/a -o name", r"^machine.compute.ironcore.dev/a$"),
    row("get machine a -o jsonpath={{.status.state}}", r"^Pending$"),
    row("get machine a -o go-template={{{{.metadata.name}}}}", r"^a$", once=True),
    row("get machines -o custom-columns=N:.metadata.name,P:.spec.power", r"^a +On$"),
    row("get machines -A --field-selector=metadata.namespace={n}", r"^{n} +a "),
    row("get machines --show-labels", r"tier=web"),
    row("get machines -l tier=web -o name", r"/a$"),
    row("get machines -l 'tier in (db),tier!=web'", r"No resources found", once=True),
    row("get machines -L tier", r"TIER", r"web", once=True),
    row("get machines --field-selector=spec.machinePoolRef.name=pool-a", r"^a "),
    row(
        "get machines --field-selector=spec.nothing=a",
        r"field label not supported",
        code=1,
        once=True,
    ),
    row("get machine a --subresource=status", r"^a ", once=True),
    row("get all", r"a +small"),
    row("get machines,namespaces", r"machine.compute.ironcore.dev/a", r"namespace/{n} "),
    row("describe machine a", r"Name: +a", r"Machine Class Ref", r"Events: +<none>"),
    row("get machines -w", r"Running", starts="watch", code=None),
    row("wait --for=condition=Ready machine/a --timeout=60s", r"condition met", starts="ready"),
    row(
        "wait --for=jsonpath={{.status.state}}=Running machine/a --timeout=60s",
        r"condition met",
        starts="running",
    ),
    row(
        f"patch machine a --subresource=status --type=merge -p '{READY}'".replace(
            "{", "{{"
        ).replace("}", "}}"),
        r"patched",
    ),
    row("get machine a", r"Running", ends="ready"),
    row("get machine a -o jsonpath={{.metadata.generation}}", r"^1$", ends="running"),
    row("get machine a", r"Running", ends="watch"),
    row("wait --for=condition=Sleepy machine/a --timeout=1s", r"timed out", code=1, once=True),
    row("apply -f -", r"configured", stdin=MACHINE),
    row("apply -f -", r"unchanged", stdin=MACHINE),
    row("diff -f -", r'\+ +power: "?Off', code=1, stdin=OFF),
    row("diff -f -", stdin=MACHINE),
    row("apply -f - --dry-run=server", r"configured \(server dry run\)", stdin=OFF),
    row("apply -f -", r"configured", stdin=OFF),
    row("apply -f -", r"configured", stdin=MACHINE),
    row("apply view-last-applied machine a", r"machineClassRef", once=True),
    row("apply -f -", r"created", stdin=SECOND),
    row("get machines --sort-by=.metadata.labels.tier -o name", r"/b\n.*/a"),
    row("get machines --sort-by=.metadata.name --no-headers", r"^a .*\nb "),
    row("get machines --chunk-size=1 -o name", r"/a\n.*/b", once=True),
    row("""patch machine a -p '{{"spec":{{"power":"Off"}}}}'""", r"patched"),
    row("""patch machine a --type=merge -p '{{"spec":{{"power":"On"}}}}'""", r"patched"),
    row(
        """patch machine a --type=json -p '[{{"op":"replace","path":"/spec/power","value":"Off"}}]'""",
        r"patched",
    ),
    row(
        """patch machine a --type=json -p '[{{"op":"test","path":"/spec/power","value":"On"}}]'""",
        r"invalid",
        code=1,
    ),
    row("""patch machine a --type=merge -p '{{"spec":{{"power":"Hm"}}}}'""", r"is invalid", code=1),
    row(
        """patch machine a --type=merge -p '{{"spec":{{"machineClassRef":{{"name":"x"}}}}}}'""",
        r"spec.machineClassRef: Forbidden: field is immutable",
        code=1,
    ),
    row("patch machine none --type=merge -p '{{}}'", r"NotFound", code=1, once=True),
    row("edit machine a", r"edited", editor='s/power: "*Off.*/power: "On"/'),
    row("get machine a -o jsonpath={{.spec.power}}", r"^On$"),
    row("edit machine a", r"no changes made", editor=""),
    row("edit machine a", r"no valid changes were saved", editor="s/power: .*/power: Hm/", code=1),
    row("label machine a size=1", r"labeled"),
    row("label machine a size=2", r"--overwrite is false", code=1),
    row("label machines --all size=2 --overwrite", r"/b labeled"),
    row("label machine a bad/=1", code=1, once=True),
    row("label machine a size-", r"unlabeled|labeled"),
    row("annotate machine a note='a word'", r"annotate"),
    row("annotate machines -l tier=web note-", r"annotate"),
    row("get machine b -o yaml --show-managed-fields=false", r"size: \"2\"", once=True),
    row("replace -f -", r"replaced", stdin=SECOND),
    row("replace --force -f -", r"deleted", r"replaced", stdin=SECOND),
    row("replace -f -", r"NotFound", code=1, stdin=SECOND.replace("name: b", "name: none")),
    row("replace --subresource=status -f -", r"replaced", stdin=STATUS),
    row("get machine a -o jsonpath={{.status.state}}/{{.spec.power}}", r"^Shutdown/On$"),
    row("get machine a -o jsonpath={{.metadata.uid}}", keeps="UID"),
    row("create -f -", r"event/a.1 created", stdin=EVENT),
    row("get events", r"Warning +Tripped +machine/a +over a cable"),
    row("get events -o wide", r"table", once=True),
    row("events", r"\(x3 over .*Warning +Tripped +Machine/a +over a cable"),
    row("events --for machine/a", r"Tripped"),
    row("events --for machine.v1alpha1.compute.ironcore.dev/b", r"No events found", since=28),
    row("events --types=Normal", r"No events found", once=True),
    row(
        "get events --field-selector=type=Warning,involvedObject.name=a -o name",
        r"^event/a.1$",
        once=True,
    ),
    row("get events.events.k8s.io", r"Warning +Tripped +machine/a +over a cable", once=True),
    row(
        "get events.v1.events.k8s.io a.1 -o jsonpath={{.note}}/{{.deprecatedCount}}",
        r"^over a cable/3$",
        once=True,
    ),
    row("explain events --api-version=events.k8s.io/v1", r"regarding", once=True),
    row("describe machine a", r"Warning +Tripped .*over a cable"),
    row("describe event a.1", r"Tripped", once=True),
    row("delete events --all", r'event "a.1" deleted'),
    row("scale machine a --replicas=2", r"could not find|NotFound", code=1, once=True),
    row(
        "rollout status machine/a",
        r"no kind \"Machine\" is registered|not supported",
        code=1,
        once=True,
    ),
    row("autoscale machine a --max=2", code=1, once=True),
)

DELETIONS = (
    row("""patch machine b --type=merge -p '{{"metadata":{{"finalizers":["x.example/y"]}}}}'"""),
    row("wait --for=delete machine/b --timeout=60s", starts="gone"),
    row("delete machine b --wait=false", r"deleted"),
    row("get machine b -o jsonpath={{.metadata.deletionTimestamp}}", r"^20\d\d-"),
    row("delete machine b --wait=false --now", r"deleted"),
    row("""patch machine b --type=json -p '[{{"op":"remove","path":"/metadata/finalizers"}}]'"""),
    row("get machine b", r"NotFound", code=1, ends="gone"),
    row("delete machine b", r"NotFound", code=1),
    row("delete machine b --ignore-not-found"),
    row("create -f -", stdin=SECOND),
    row("delete machine b --dry-run=server", r"deleted \(server dry run\)"),
    row("delete machine b --cascade=foreground", r"deleted"),
    row("create -f -", stdin=SECOND),
    row("delete machine b --cascade=orphan --grace-period=5", r"deleted"),
    row("create -f -", stdin=SECOND),
    row("delete -f - --force --grace-period=0", r"deleted", stdin=SECOND),
    row("create -f -", stdin=SECOND),
    row("delete machines -l tier=db -o name", r"/b"),
    row("delete machines --all", r'"a" deleted'),
    row("get machines", r"No resources found"),
    row("wait --for=delete machine/a --timeout=5s", code=None),
)

OTHERS = (
    row("create -f -", r"created", stdin=POOL),
    row("create -f -", r"created", stdin=CLASS),
    row("get machinepools", r"^{n} +<none> +Unknown +\d+s"),
    row("get machineclasses", r"^{n} +2 +4Gi +\d+s"),
    row("describe machinepool {n}", r"API Version: +compute.ironcore.dev/v1alpha1"),
    row("describe machineclass {n}", r"Cpu: +2", once=True),
    row("label machinepool {n} zone=a", r"labeled"),
    row(
        'patch machineclass {n} --type=merge -p \'{{"capabilities":{{"cpu":"3"}}}}\'',
        r"capabilities: Forbidden: field is immutable",
        code=1,
    ),
    row(
        "patch machinepool {n} --subresource=status --type=merge "
        '-p \'{{"status":{{"state":"Ready"}}}}\'',
        r"patched",
    ),
    row("wait --for=jsonpath={{.status.state}}=Ready machinepool/{n}", r"condition met"),
    row("delete machinepool,machineclass {n}", r"machinepool.*deleted", r"machineclass.*deleted"),
    row("create namespace {n}-two", r"created"),
    row(
        "create namespace {n}-three --dry-run=server -o yaml",
        r"kubernetes.io/metadata.name",
        once=True,
    ),
    row("create namespace Bad", r"Invalid value", code=1, once=True),
    row("get ns {n}-two -o jsonpath={{.status.phase}}", r"^Active$"),
    row("describe ns {n}-two", r"Status: +Active"),
    row("annotate ns {n}-two a=b", r"annotate"),
    row("create -n {n}-two -f -", r"created", stdin=MACHINE),
    row("delete ns {n}-two", r"deleted"),
    row("get machine a -n {n}-two", r"NotFound", code=1),
    row("delete ns default", r"Forbidden", code=1, once=True),
    row("create role r --verb=get,list --resource=machines,machines/exec", r"created"),
    row("create role r2 --verb=get --resource=machines --resource-name=a", r"created"),
    row("get roles", r"^NAME +CREATED AT", r"^r +20\d\d-"),
    row("describe role r", r"machines.compute.ironcore.dev +\[\] +\[\] +\[get list\]"),
    row("create rolebinding b --role=r --user=ada --group=dev --serviceaccount={n}:sa", r"created"),
    row("get rolebindings -o wide", r"^b +Role/r +\d+s +ada +dev +{n}/sa"),
    row("describe rolebinding b", r"User +ada"),
    row("auth can-i list machines --as=ada", r"^yes"),
    row("auth can-i --list --as=ada", r"machines.compute.ironcore.dev/exec"),
    row("create clusterrole {n} --verb=get --non-resource-url=/metrics", r"created"),
    row("create clusterrole {n}-sum --aggregation-rule=table={n}", r"created"),
    row("label clusterrole {n} table={n}", r"labeled"),
    row("describe clusterrole {n}-sum", r"\[/metrics\]"),
    row("create clusterrolebinding {n} --clusterrole={n} --user=ada", r"created"),
    row("get clusterrolebinding {n} -o wide", r"ClusterRole/{n} +\d+s +ada"),
    row("auth can-i get /metrics --as=ada", r"^yes"),
    row(
        'patch rolebinding b --type=merge -p \'{{"roleRef":{{"name":"x"}}}}\'',
        r"cannot change roleRef",
        code=1,
    ),
    row("auth reconcile -f -", r"reader reconciled", r"readers reconciled", stdin=RBAC),
    row("auth reconcile -f -", r"reader reconciled", stdin=RBAC.replace("list]", "watch]")),
    row("get role reader -o jsonpath={{.rules[*].verbs}}", r"watch"),
    row("set subject rolebinding b --user=bob", r"subjects updated"),
    row("describe clusterrole view", r"machines.compute.ironcore.dev", once=True),
    row("delete clusterrole,clusterrolebinding {n}", r"deleted"),
    row("delete clusterrole {n}-sum", r"deleted"),
    row("delete roles,rolebindings --all", r"deleted"),
    row("create secret generic s --from-literal=a=hunter2", r"created"),
    row("create secret generic s --from-literal=a=hunter2", r"already exists", code=1),
    row("get secrets", r"^s +Opaque +1 +\d+s"),
    row("describe secret s", r"a: +7 bytes"),
    row("get secret s -o jsonpath={{.data.a}}", r"^aHVudGVyMg==$", once=True),
    row("explain secret.stringData", r"is merged into", once=True),
    row("auth can-i get secrets --as=ada", r"^no", code=1, once=True),
    row("create -f -", r"created", stdin=signing_request("NAME")),
    row("get csr {n}", r"^{n} +\d+s +example.com/table +admin +<none> +Pending"),
    row("certificate approve {n}", r"approved"),
    row("get csr {n}", r"Approved"),
    row("certificate deny {n}", r"already Approved", code=1, once=True),
    row("describe csr {n}", r"Requesting User: +admin", r"Status: +Approved"),
    row("create -f -", r"created", stdin=signing_request("NAME-no")),
    row("certificate deny {n}-no", r"denied"),
    row("get csr {n}-no", r"Denied"),
    row("delete csr {n} {n}-no", r"deleted"),
    row("get volumes,networkinterfaces,networks,prefixes", r"No resources found", once=True),
    row("explain volume.spec.resources", r"map\[string\]Quantity", once=True),
    row("delete ns {n}", r"deleted"),
)


def table(minor: int, newest: bool) -> Iterator[Row]:
    """Yield the rows for kubectl 1.``minor``."""
    for each in (*SERVER, *OBJECTS, *DELETIONS, *OTHERS):
        if each.since <= minor <= each.until and (newest or not each.once):
            yield each
