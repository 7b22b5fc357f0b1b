"""
Answers to every verb on every kind of object, by identity: what the restrictions of poollets,
node servers and members of the exposed group come to over HTTP.

Each identity has its own role first, and then ``cluster-admin`` as well: a restriction holds
whatever roles allow.  Writes are dry runs, which pass authorization and admission and change
nothing.

The directory ``answers`` has the expected ones. A line is a request, and its answer to each of
``IDENTITIES``: the HTTP status, ``!`` when a restriction and not a role refuses, and in brackets the names
(or their number) in a list. ``reasons.txt`` has the messages of the refusals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.apiserver.support import MERGE, RBAC, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.signing.interfaces import SERVING

COMPUTE = "/apis/compute.ironcore.dev/v1alpha1"
STORAGE = "/apis/storage.ironcore.dev/v1alpha1"
NETWORKING = "/apis/networking.ironcore.dev/v1alpha1"
POOL_A = "compute.ironcore.dev:system:machinepool:pool-a"
IDENTITIES = ("pool-a", "pool-b", "no-pool", "no-group", "node-a", "no-node", "leaf", "jane")
"""``pool-b`` has a machine that names none of the objects; ``jane`` is nobody special."""


def expected_lines(name: str) -> list[str]:
    """Return the lines of a file of expected answers."""
    return (Path(__file__).parent / "answers" / f"{name}.txt").read_text().splitlines()


_OWN_POOL = "fieldSelector=spec.machinePoolRef.name%3Dpool-a"
_OTHER_POOL = "fieldSelector=spec.machinePoolRef.name%3Dpool-b"
_NOT_OTHER_POOL = "fieldSelector=spec.machinePoolRef.name%21%3Dpool-b"
_OWN_NAME = "fieldSelector=metadata.name%3Dnode-a"
_LABEL: Object = {"metadata": {"labels": {"a": "b"}}}


_REASON = re.compile(r'the (poollet|server) of .* may not .*|user "[^"]*" (of \S+ )?is not the .*')
"""By which a refusal by a restriction is told from one by roles."""
_NAME = re.compile(r'(?<= )"[^"]*"$')
_COLLECTION_VERBS = ("list", "watch", "deletecollection")
_MARK = "mark-of-an-invisible-object"
_INVISIBLE = (
    ("machines", "theirs"),
    ("machines", "free"),
    ("secrets", "other"),
    ("volumes", "other"),
    ("networkinterfaces", "other"),
    ("networks", "wan"),
)
"""Besides the request of node-a, objects that the poollet of pool-a may not see, whatever its role."""
_FEW = 4
"""Longer lists are told by their length."""


@dataclass(frozen=True)
class Collection:
    """
    Objects of one kind, and the requests for them.

    :param path: of the collection.
    :param names: of objects; not all of them exist.
    :param queries: of lists and watches.
    :param patches: merge patches of an object, by what they do.
    :param body: of an object that is created, besides its name.
    :param others: more requests, as method and what follows the object's path.
    """

    path: str
    names: Sequence[str]
    queries: Sequence[str] = ("",)
    patches: Mapping[str, Object] = field(default_factory=lambda: {"label": _LABEL})
    body: Object = field(default_factory=dict)
    has_status: bool = False
    others: Sequence[tuple[str, str]] = ()


def _event(key: str, kind: str, name: str, uid: str = "u") -> Object:
    version = "v1" if kind == "Node" else "compute.ironcore.dev/v1alpha1"
    namespace = {"namespace": "default"} if kind == "Machine" else {}
    return {key: {"apiVersion": version, "kind": kind, "name": name, "uid": uid, **namespace}}


_VOLUME: Object = {"volumeClassRef": {"name": "fast"}, "resources": {"storage": "1Gi"}}
_INTERFACE: Object = {
    "networkRef": {"name": "lan"},
    "ipFamilies": ["IPv4"],
    "ips": [{"value": "10.0.0.1"}],
}
_MACHINE: Object = {
    "machineClassRef": {"name": "small"},
    "machinePoolRef": {"name": "pool-a"},
}
_STREAMS = (("POST", "/exec"), ("GET", "/log"))

COLLECTIONS: Mapping[str, Collection] = {
    "machines": Collection(
        f"{COMPUTE}/namespaces/default/machines",
        ("mine", "theirs", "free", "missing"),
        ("", _OWN_POOL, _OTHER_POOL, _NOT_OTHER_POOL),
        {
            "annotate": {"metadata": {"annotations": {"a": "b"}}},
            "label": _LABEL,
            "power": {"spec": {"power": "Off"}},
            "bind": {"spec": {"machinePoolRef": {"name": "pool-a"}}},
        },
        {"spec": _MACHINE},
        has_status=True,
        others=_STREAMS,
    ),
    "machinepools": Collection(
        f"{COMPUTE}/machinepools", ("pool-a", "pool-b", "pool-c"), has_status=True
    ),
    "machineclasses": Collection(
        f"{COMPUTE}/machineclasses",
        ("small", "missing"),
        body={"capabilities": {"cpu": 1, "memory": 1}},
    ),
    "secrets": Collection(
        "/api/v1/namespaces/default/secrets",
        ("named", "other", "later", "missing"),
        ("", "fieldSelector=metadata.name%3Dother"),
    ),
    "volumes": Collection(
        f"{STORAGE}/namespaces/default/volumes",
        ("disk", "other", "missing"),
        patches={"label": _LABEL, "release": {"spec": {"claimRef": None}}},
        body={"spec": _VOLUME},
        has_status=True,
    ),
    "networkinterfaces": Collection(
        f"{NETWORKING}/namespaces/default/networkinterfaces",
        ("nic", "other", "missing"),
        patches={"label": _LABEL, "provide": {"spec": {"providerID": "x"}}},
        body={"spec": _INTERFACE},
        has_status=True,
    ),
    "networks": Collection(f"{NETWORKING}/namespaces/default/networks", ("lan", "wan", "missing")),
    "leases": Collection(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        ("node-a", "node-b", "pool-a"),
        ("", _OWN_NAME),
    ),
    "pool leases": Collection(
        "/apis/coordination.k8s.io/v1/namespaces/ironcore-machinepool-lease/leases",
        ("pool-a", "pool-b", "node-a"),
    ),
    "nodes": Collection(
        "/api/v1/nodes", ("node-a", "node-b", "missing"), ("", _OWN_NAME), has_status=True
    ),
    "events": Collection(
        "/api/v1/namespaces/default/events",
        ("of-mine", "of-theirs", "of-node-a", "missing"),
        body=_event("involvedObject", "Machine", "theirs"),
    ),
    "new events": Collection(
        "/apis/events.k8s.io/v1/namespaces/default/events",
        ("of-mine", "of-theirs", "of-node-a", "missing"),
        body={
            **_event("regarding", "Machine", "theirs"),
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "x",
            "reportingInstance": "x",
            "action": "x",
            "reason": "x",
            "type": "Normal",
        },
    ),
    "certificatesigningrequests": Collection(
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        ("of-pool-a", "of-node-a", "missing"),
        has_status=True,
    ),
    "namespaces": Collection("/api/v1/namespaces", ("default", "missing")),
    "clusterroles": Collection(f"{RBAC}/clusterroles", ("view", "missing"), body={"rules": []}),
    "serviceaccounts": Collection(
        "/api/v1/namespaces/default/serviceaccounts", ("robot", "missing")
    ),
    "consolesessions": Collection(
        "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolesessions",
        ("missing",),
        patches={},
    ),
    "deletedconsoles": Collection(
        "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/deletedconsoles",
        ("of-mine", "of-theirs", "missing"),
        patches={},
        others=(("GET", "/log"),),
    ),
    "pods": Collection(
        "/api/v1/namespaces/default/pods",
        ("mine", "theirs", "missing"),
        patches={},
        has_status=True,
        others=(("POST", "/attach?stdin=1"), *_STREAMS),
    ),
}


class RestrictionTests(APITestCase):
    """Every answer of the table."""

    pods_view: ClassVar[bool] = True

    def setUp(self) -> None:
        super().setUp()
        for name in ("default", "kube-node-lease", "ironcore-machinepool-lease"):
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for name in ("pool-a", "pool-b"):
            self.make_pool(name)
        self.make("machineclasses", "small")
        for name in ("named", "other"):
            self.make("secrets", name)
        for name in ("lan", "wan"):
            self.make("networks", name)
        for name in ("nic", "other"):
            network = "lan" if name == "nic" else "wan"
            self.make(
                "networkinterfaces", name, spec=_INTERFACE | {"networkRef": {"name": network}}
            )
        encryption = {"encryption": {"secretRef": {"name": "later"}}}
        self.make("volumes", "disk", spec=_VOLUME | encryption)
        self.make("volumes", "other")
        mine = self.make_machine(
            "mine",
            "pool-a",
            ignitionRef={"name": "named"},
            volumes=[{"name": "root", "volumeRef": {"name": "disk"}}],
            networkInterfaces=[{"name": "n", "networkInterfaceRef": {"name": "nic"}}],
        )
        theirs = self.make_machine("theirs", "pool-b")
        self.make_machine("free", "")
        for name in ("node-a", "node-b"):
            self.make("nodes", name)
            self.make("leases", name)
        for name in ("pool-a", "pool-b"):
            self.make("pool leases", name)
        of_machines = (("mine", mine), ("theirs", theirs))
        for name, each in of_machines:
            uid = each["metadata"]["uid"]
            self.make("events", f"of-{name}", **_event("involvedObject", "Machine", name, uid))
        self.make("events", "of-node-a", **_event("involvedObject", "Node", "node-a"))
        self.make("serviceaccounts", "robot")
        for name, user in (("of-pool-a", POOL_A), ("of-node-a", "system:node:node-a")):
            self.make_request(name, user)
        for name, pool in (("of-mine", "pool-a"), ("of-theirs", "pool-b")):
            self.make_deleted(name, pool)
        self.clock.advance(1)

    def make(self, collection: str, name: str, **body: Any) -> None:
        """Store an object of a collection."""
        target = COLLECTIONS[collection]
        self.answer(
            "POST", target.path, {**target.body, **body, "metadata": {"name": name}}, code=201
        )

    def make_request(self, name: str, user: str) -> None:
        """Store a certificate signing request."""
        resource = kinds.CERTIFICATESIGNINGREQUESTS.resource
        obj: Object = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "uid": name,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {} if user == POOL_A else {"mark": _MARK},
            },
            "spec": {
                "request": "AA==",
                "signerName": SERVING,
                "usages": ["server auth"],
                "username": user,
            },
        }
        self.successResultOf(self.storage.create(resource, obj))

    def make_deleted(self, name: str, pool: str) -> None:
        """Store the console of a deleted machine of a pool."""
        resource = kinds.DELETEDCONSOLES.resource
        obj: Object = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "machine": "vm",
                "machineResource": "machines.compute.ironcore.dev",
                "machineUID": "u",
                "pool": pool,
                "deletionTime": "2026-01-01T00:00:00Z",
                "expirationTime": "2036-01-08T00:00:00Z",
            },
        }
        self.successResultOf(self.storage.create(resource, obj))

    def requests(self, collection: Collection) -> Iterator[tuple[str, str, str, Any]]:
        """Yield the label, method, path and body of each request for a collection."""
        path = collection.path
        for query in collection.queries:
            label = query.removeprefix("fieldSelector=").replace("%3D", "=").replace("%21", "!")
            yield f"list {label}".strip(), "GET", f"{path}?{query}", None
            more = "watch=1&timeoutSeconds=0"
            yield f"watch {label}".strip(), "GET", f"{path}?{more}&{query}", None
            dry = "dryRun=All"
            yield f"deletecollection {label}".strip(), "DELETE", f"{path}?{dry}&{query}", None
        for name in collection.names:
            item, dry = f"{path}/{name}", "?dryRun=All"
            body = {**collection.body, "metadata": {"name": name}}
            yield f"get {name}", "GET", item, None
            yield f"create {name}", "POST", path + dry, body
            yield f"update {name}", "PUT", item + dry, body
            for label, patch in collection.patches.items():
                yield f"{label} {name}", "PATCH", item + dry, patch
            yield f"delete {name}", "DELETE", item + dry, None
            if collection.has_status:
                yield f"get {name}/status", "GET", f"{item}/status", None
                yield f"patch {name}/status", "PATCH", f"{item}/status{dry}", {"status": {}}
            for method, rest in collection.others:
                yield f"{method.lower()} {name}{rest}", method, item + rest, None

    def give_everything(self) -> None:
        """Bind all authenticated users to cluster-admin."""
        body = {
            "metadata": {"name": "everybody"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}],
        }
        self.answer("POST", f"{RBAC}/clusterrolebindings", body, code=201)

    def send(self, user: str, label: str, method: str, path: str, body: Any) -> tuple[int, str]:
        """Send one request; return the status and all that came back."""
        if label.startswith("watch"):
            client = self.server.connect()
            head = f"GET {path} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {user}\r\n\r\n"
            client.send(head.encode())
            raw = client.received().decode()
            client.lose()
            return int(raw.split(" ", 2)[1]), raw
        content_type = MERGE if method == "PATCH" else "application/json"
        response = self.ask(method, path, body, user=user, content_type=content_type)
        return response.code, response.body.decode()

    def cell(self, user: str, label: str, method: str, path: str, body: Any) -> str:
        """One answer: its code, with ``!`` when a restriction refused, and names that it shows."""
        code, text = self.send(user, label, method, path, body)
        if label.startswith("watch"):
            named = re.findall(r'"ADDED",.*?"metadata":{"name":"([^"]*)"', text)
        else:
            items = json.loads(text).get("items") if code == 200 and "items" in text else None
            named = [each["metadata"]["name"] for each in items or ()]
        if code >= 300:
            reason = _REASON.search(json.loads(text[text.index("{") :].splitlines()[0])["message"])
            if reason is None:
                return str(code)
            self.reasons.add(_NAME.sub('"*"', reason[0]))
            return f"{code}!"
        names = ",".join(named) if len(named) <= _FEW else f"{len(named)}"
        return f"{code}[{names}]" if label.split()[0] in _COLLECTION_VERBS else str(code)

    def answers(self) -> str:
        """The table: a paragraph for each collection, a line for each request."""
        lines = []
        for title, collection in COLLECTIONS.items():
            lines.append(f"[{title}]")
            for label, *request in self.requests(collection):
                cells = [self.cell(user, label, *request) for user in IDENTITIES]
                lines.append(f"{label}: {' '.join(cells)}")
        return "\n".join(lines)

    def check(self, name: str) -> None:
        self.maxDiff = None
        self.reasons: set[str] = set()
        lines = self.answers().splitlines()
        for line, expected_line in zip(lines, expected_lines(name), strict=True):
            self.assertEqual(line, expected_line)
        self.assertLessEqual(self.reasons, set(expected_lines("reasons")))

    def test_own_role(self) -> None:
        """With the role that each identity has anyway."""
        self.check("own_role")

    def test_also_admin(self) -> None:
        """With a role that allows everything: the restrictions hold, and nothing else refuses."""
        self.give_everything()
        self.check("also_admin")

    def test_contents(self) -> None:
        """No answer of any kind contains a part of an object that the poollet may not see."""
        self.give_everything()
        mark: Object = {"metadata": {"annotations": {"mark": _MARK}}}
        for title, name in _INVISIBLE:
            path = f"{COLLECTIONS[title].path}/{name}"
            self.answer("PATCH", path, mark, content_type=MERGE)
        marked = 0
        for collection in COLLECTIONS.values():
            for request in self.requests(collection):
                self.assertNotIn(_MARK, self.send("pool-a", *request)[1], request)
                marked += _MARK in self.send("admin", *request)[1]
        self.assertGreater(marked, len(_INVISIBLE))
