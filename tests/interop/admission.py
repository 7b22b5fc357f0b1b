"""
A real kube-apiserver, which serves our kinds as custom resources, and our own verbs get the same
requests under the same admission: webhooks and policies in this kube-apiserver, which we watch.

Answers to clients and requests to webhooks must be the same.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import subprocess
from collections.abc import Mapping

from twisted.internet.threads import deferToThread

from tests import needs
from tests.apiserver.aggregated.admission.webhooks import (
    JANE,
    AdmissionCase,
    Reply,
    allow,
    deny,
    machine,
    patch,
    rule,
)
from tests.interop.aggregated_cluster import AggregatedCluster
from tests.interop.kube_apiserver import TOKEN, KubeAPIServer
from tests.tls.support import reactor
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.admission import objects
from twisted_exec.apiserver.aggregated.admission.plugin import HostAdmission
from twisted_exec.apiserver.interfaces import Opening
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.storage.memory import MemoryStorage

MACHINES = kinds.MACHINES.resource
TARGET = RequestTarget(kinds.MACHINES, "default")
_NATURES = ("uid", "userInfo", "options")
_SERVERS = ("managedFields", "uid", "creationTimestamp", "resourceVersion", "generation")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def labelling(name: str) -> Reply:
    """A webhook's reply that sets a label."""

    def reply(request: Object) -> Object:
        labels = {**(request["object"]["metadata"].get("labels") or {}), name: "x"}
        return patch({"op": "add", "path": "/metadata/labels", "value": labels})

    return reply


DENIALS: Mapping[str, Reply] = {
    "with words": deny("no machines today"),
    "without": deny(),
    "with a reason": deny(reason="Forbidden", code=403),
    "with all": deny(
        "two\nlines", reason="Invalid", code=422, details={"name": "vm", "causes": [{"field": "x"}]}
    ),
    "with a success's code": deny("no", code=200),
    "with warnings": lambda request: {"allowed": False, "warnings": ["one", "two"]},
    "of another": lambda request: {"uid": "another"},
    "with a patch": lambda request: patch({"op": "add", "path": "/a", "value": 1}),
}
POLICIES: Mapping[str, Object] = {
    "plain": {"validations": [{"expression": "object.spec.machineClassRef.name != 'small'"}]},
    "worded": {
        "validations": [
            {
                "expression": "request.dryRun == false",
                "reason": "Forbidden",
                "messageExpression": "'no ' + variables.name",
            }
        ],
        "variables": [{"name": "name", "expression": "object.metadata.name"}],
    },
    "failing": {"validations": [{"expression": "object.spec.nothing == 'small'"}]},
    "of what the request has": {
        "validations": [
            {
                "expression": "has(request.subResource) || request.namespace != 'default' "
                "|| request.kind.kind != 'Machine' || request.options.kind != 'CreateOptions'"
            }
        ]
    },
    "of numbers": {
        "validations": [{"expression": "double('1.5') < 1 || size(object.metadata.name) < 2.5"}]
    },
    "of the namespace": {
        "validations": [{"expression": "namespaceObject.metadata.name != 'default'"}]
    },
    "on a condition": {
        "validations": [{"expression": "false", "message": "never"}],
        "matchConditions": [{"name": "c", "expression": "request.operation in ['CREATE']"}],
    },
}


class SameTests(AdmissionCase):
    """kube-apiserver and our verbs answer the same requests alike."""

    timeout = 600
    skip = needs.kube_apiserver()

    async def setUp(self) -> None:
        await super().setUp()
        self.server = KubeAPIServer()
        self.addCleanup(self.server.stop)
        await deferToThread(self.server.start)
        config = ClientConfig(self.server.url, token=TOKEN, insecure_skip_tls_verify=True)
        self.client = KubeClient(config, reactor)  # type: ignore[assignment]
        self.addCleanup(self.client.close)  # type: ignore[attr-defined]
        self.admission = HostAdmission(self.client, reactor)
        self.admission.startService()
        self.addCleanup(self.admission.stopService)
        storage = MemoryStorage()
        namespace = {"metadata": {"name": "default", "uid": "u"}}
        await storage.create(kinds.NAMESPACES.resource, namespace)
        self.verbs = Verbs(storage, [self.admission], reactor.seconds)
        self.numbers = itertools.count()

    async def kubes(self, new: Object) -> tuple[Object, list[str]]:
        """Create with a dry run in kube-apiserver; return its answer and its warnings."""
        path = f"{MACHINES.path('default')}?dryRun=All"
        answer = await deferToThread(self.server.ask, "POST", path, json.dumps(new).encode())
        return _alike(answer.document), answer.headers.get_all("Warning") or []

    async def ours(self, new: Object) -> tuple[Object, list[str]]:
        """Create with a dry run through our verbs; return the answer and the warnings."""
        options = WriteOptions(dry_run=True, submitted={"dryRun": ["All"]})
        try:
            told = await self.verbs.create(JANE, TARGET, copy.deepcopy(new), options)
        except APIError as error:
            told = error.to_status()
        return _alike(told), [f'299 - "{each}"' for each in options.advice]

    def reviews(self) -> list[Object]:
        """Return the AdmissionReviews that webhooks received since the last call."""
        asked, self.hooks.asked = self.hooks.asked, []
        return [{**_reviewed(each), "query": query.decode()} for _, query, each in asked]

    async def same(self, told: str, new: Object | None = None) -> Object:
        """Ask both; :return: what both answer."""
        new = new or machine()
        self.hooks.asked.clear()
        theirs, asked_by_them = await self.kubes(new), self.reviews()
        ours, asked_by_us = await self.ours(new), self.reviews()
        self.assertEqual(ours, theirs, told)
        self.assertEqual(asked_by_us, asked_by_them, told)
        return theirs[0]

    async def configured(self, validating: list[Object], mutating: list[Object]) -> str:
        """
        Both have a configuration; :return: its name.

        Both know of it when they ask a webhook of it that is about another kind.
        """
        name = f"config-{next(self.numbers)}"
        about = rule(resources=("machineclasses",))

        def knows(request: Object) -> Object:
            labels = request["object"]["metadata"].get("labels") or {}
            return deny(f"both know {name}" if name in labels else "not yet")(request)

        first = self.webhook(f"first-{name}", labelling(name), about)
        await self.mutating(*mutating, first, name=name)
        await self.validating(*validating, self.webhook(name, knows, about), name=name)
        await self.until_denied(f"both know {name}")
        return name

    async def until_denied(self, words: str) -> None:
        """Wait until kube-apiserver refuses a MachineClass; we know of all that it has answered."""
        small = {"metadata": {"name": "small"}, "capabilities": {"cpu": "1", "memory": "1"}}
        raw = json.dumps(
            {"apiVersion": MACHINES.api_version, "kind": "MachineClass", **small}
        ).encode()
        path = f"{kinds.MACHINECLASSES.resource.path()}?dryRun=All"
        target = RequestTarget(kinds.MACHINECLASSES)
        theirs = ours = ""
        while not (words in theirs and words in ours):
            answer = await deferToThread(self.server.ask, "POST", path, raw)
            theirs = answer.document.get("message", "")
            try:
                await self.verbs.create(
                    JANE, target, copy.deepcopy(small), WriteOptions(dry_run=True)
                )
            except APIError as error:
                ours = error.message

    async def gone(self, name: str) -> None:
        """Delete the configurations of this name."""
        for versions in (
            objects.MUTATING_WEBHOOKS,
            objects.VALIDATING_WEBHOOKS,
        ):
            await self.client.delete(versions[0], name)

    async def test_denied(self) -> None:
        """For every kind of denial by a webhook, the client gets the same message."""
        for told, reply in DENIALS.items():
            name = await self.configured([self.webhook("v", reply)], [])
            refused = await self.same(told)
            self.assertEqual(refused["status"], "Failure", told)
            await self.gone(name)

    async def test_changed(self) -> None:
        """Mutating webhooks get the same requests, in the same order and as often."""
        name = await self.configured(
            [self.webhook("v", allow)],
            [
                self.webhook("a", labelling("a"), reinvocationPolicy="IfNeeded"),
                self.webhook("b", labelling("b")),
            ],
        )
        made = await self.same("mutating")
        self.assertEqual(made["metadata"]["labels"], {"a": "x", "b": "x"})
        self.assertEqual(made["managed"], ["f:spec"])
        await self.gone(name)
        name = await self.configured([], [self.webhook("a", lambda request: {"patch": "W10="})])
        await self.same("a patch without its type")
        await self.gone(name)

    async def test_policies(self) -> None:
        """Refusals by policies have the same messages."""
        policies, bindings = (
            objects.VALIDATING_POLICIES[0],
            objects.VALIDATING_BINDINGS[0],
        )
        for told, spec in POLICIES.items():
            name = f"policy-{next(self.numbers)}"
            # Of its own name, as kube-apiserver forgets other policies when it comes to that.
            mine = {"resourceRules": [rule(resourceNames=[name])]}
            await self.put(policies, name, spec={"matchConstraints": mine, **spec})
            about = {"resourceRules": [rule(resources=("machineclasses",))]}
            known = {"expression": "false", "message": f"both know {name}"}
            await self.put(
                policies, f"{name}-known", spec={"matchConstraints": about, "validations": [known]}
            )
            for each in (name, f"{name}-known"):
                bound = {"policyName": each, "validationActions": ["Deny"]}
                await self.put(bindings, each, spec=bound)
            await self.until_denied(f"both know {name}")
            refused = await self.same(told, machine(name))
            self.assertEqual(refused["status"], "Failure", told)
            for each in (name, f"{name}-known"):
                await self.client.delete(bindings, each)
                await self.client.delete(policies, each)

    async def test_streams(self) -> None:
        """Before a stream opens, webhooks get the same CONNECT review as for a Pod's stream."""
        everything = rule("CONNECT", resources=("*/*",), apiGroups=["*"])
        await self.configured([self.webhook("v", deny("closed"), everything)], [])
        path = "/api/v1/namespaces/default/pods/x/exec?command=sh&stdin=true"
        self.hooks.asked.clear()
        answer = await deferToThread(self.server.ask, "POST", path)
        (theirs,) = self.reviews()
        options = {"kind": "MachineExecOptions", "apiVersion": MACHINES.api_version}
        opening = Opening(JANE, kinds.MACHINES, "default", "x", "exec", options)
        error = await self.refusal(self.admission.admit_opening(opening))
        (ours,) = self.reviews()
        self.assertEqual(error.to_status(), answer.document)
        self.assertEqual(ours["request"].keys(), theirs["request"].keys())
        for key in ("operation", "name", "namespace", "subResource", "oldObject", "dryRun"):
            self.assertEqual(ours["request"][key], theirs["request"][key], key)
        for request in (ours["request"], theirs["request"]):
            self.assertEqual(request["kind"]["kind"], request["object"]["kind"])


def _alike(told: Object) -> Object:
    """Return the answer without fields that differ between servers."""
    if told.get("kind") == "Status":
        return json.loads(_UID.sub("a UID", json.dumps(told)))  # type: ignore[no-any-return]
    metadata = told["metadata"]
    managed = [key for each in metadata.get("managedFields", ()) for key in each["fieldsV1"]]
    kept = {key: value for key, value in metadata.items() if key not in _SERVERS}
    return {"metadata": kept, "spec": told["spec"], "managed": managed}


def _reviewed(review: Object) -> Object:
    request = {key: value for key, value in review["request"].items() if key not in _NATURES}
    for key in ("object", "oldObject"):
        if "metadata" in (request[key] or {}):
            metadata = {k: v for k, v in request[key]["metadata"].items() if k not in _SERVERS}
            # Custom resources have no status of their own making.
            rest = {k: v for k, v in request[key].items() if k != "status"}
            request[key] = {**rest, "metadata": metadata}
    return {**review, "request": request}


class BehindTests(AdmissionCase):
    """Our API server behind a kube-apiserver, deployed by the manifests of the documentation."""

    timeout = 600
    skip = needs.aggregated()

    async def setUp(self) -> None:
        await super().setUp()
        self.cluster = AggregatedCluster("admission")
        self.addCleanup(deferToThread, self.cluster.stop)
        await deferToThread(self.cluster.start)
        self.client = KubeClient(load(self.cluster.kubeconfig), reactor)
        self.addCleanup(self.client.close)

    async def kubectl(self, *arguments: str, input: Object | None = None) -> str:
        """Run kubectl, and return its output, stderr after stdout."""
        done = await deferToThread(
            subprocess.run,
            ["kubectl", f"--kubeconfig={self.cluster.kubeconfig}", *arguments],
            input=json.dumps(input) if input else None,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return str(done.stdout + done.stderr)

    async def until_said(self, words: str, *arguments: str, input: Object | None = None) -> str:
        """Ask until it says so: kube-apiserver and we hear of configurations when we do."""
        said = ""
        while words not in said:
            said = await self.kubectl(*arguments, input=input)
        return said

    async def test_refused(self) -> None:
        """A webhook refuses a ConfigMap, a machine and its console with the same message."""
        everything = rule(
            "CREATE",
            "CONNECT",
            resources=("machines", "machines/exec", "configmaps"),
            apiGroups=["*"],
        )
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vm"}}
        made = await self.kubectl("create", "-f", "-", input=machine("before"))
        self.assertIn("created", made)
        await self.validating(self.webhook("v", deny("not on Fridays"), everything))
        denied = 'admission webhook "v.example.com" denied the request: not on Fridays'
        said = await self.until_said(denied, "create", "-f", "-", "--dry-run=server", input=config)
        ours = await self.until_said(
            denied, "create", "-f", "-", "--dry-run=server", input=machine()
        )
        self.assertEqual(ours, said)
        path = f"{MACHINES.path('default', 'before', 'exec')}"
        console = await self.kubectl("create", "--raw", path, "-f", "/dev/null")
        self.assertIn(denied, console)
        request = self.hooks.asked[-1][2]["request"]
        self.assertEqual(request["operation"], "CONNECT")
        self.assertEqual(request["userInfo"]["username"], "admin")
        self.assertIn("system:masters", request["userInfo"]["groups"])

    async def test_changed(self) -> None:
        """Changes by a mutating webhook are stored in the machine."""
        await self.mutating(self.webhook("m", labelling("added")))
        while True:
            await self.kubectl("create", "-f", "-", input=machine())
            made = json.loads(await self.kubectl("get", "machines", "vm", "-o", "json"))
            if made["metadata"].get("labels"):
                break
            await self.kubectl("delete", "machines", "vm")
        self.assertEqual(made["metadata"]["labels"], {"added": "x"})
