"""
A real kube-apiserver and ours get the same impersonation headers: both answer as the same user,
or refuse.

A repeated group is listed once by ours, and twice by kube-apiserver.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.threads import deferToThread

from tests import needs
from tests.apiserver.chain import ChainTestCase
from tests.chain import pki
from twisted_exec.api import kinds

from .kube_apiserver import TOKEN, KubeAPIServer

reactor: Any = _reactor
Headers = list[tuple[str, str]]

RBAC = "rbac.authorization.k8s.io/v1"
ROLE = {
    "apiVersion": RBAC,
    "kind": "ClusterRole",
    "metadata": {"name": "acts"},
    "rules": [
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]},
        {
            "verbs": ["impersonate"],
            "apiGroups": [""],
            "resources": ["groups"],
            "resourceNames": ["dev"],
        },
        {
            "verbs": ["impersonate"],
            "apiGroups": [""],
            "resources": ["serviceaccounts"],
            "resourceNames": ["robot"],
        },
        {
            "verbs": ["impersonate"],
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["uids", "userextras/scopes"],
        },
    ],
}
BINDING = {
    "apiVersion": RBAC,
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "acts"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "acts"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "actor"}],
}
REVIEW = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})


def told(user: str = "", *groups: str, uid: str = "", **extra: str) -> Headers:
    found = [("Impersonate-User", user)] if user else []
    found += [("Impersonate-Group", group) for group in groups]
    found += [("Impersonate-Uid", uid)] if uid else []
    return found + [(f"Impersonate-Extra-{key}", value) for key, value in extra.items()]


ROBOT = "system:serviceaccount:default:robot"
ASKED: tuple[Headers, ...] = (
    told("bob"),
    told("bob", "dev"),
    told("bob", "dev", "ops"),
    told("bob", "system:masters"),
    told("bob", "system:authenticated"),
    told("bob", "system:unauthenticated"),
    told("bob", uid="7"),
    told("bob", "dev", uid="7", scopes="view"),
    told("bob", scopes="view") + told(scopes="edit"),
    told("bob", team="red"),
    told("bob", Scopes="view"),
    told("bob", **{"a%2fb": "x"}),
    told("system:anonymous"),
    told("system:anonymous", "dev"),
    told("system:admin"),
    told(ROBOT),
    told(ROBOT, "dev"),
    told("system:serviceaccount:kube-system:robot"),
    told("system:serviceaccount:default:other"),
    told("system:serviceaccount:default"),
    told("system:serviceaccount:default:a:b"),
    told("", "dev"),
    told("", uid="7"),
    told("", scopes="view"),
)


class SameAsKubeAPIServerTests(ChainTestCase):
    """SelfSubjectReviews with impersonation headers, in both servers."""

    timeout = 300
    skip = needs.kube_apiserver()

    async def test_same(self) -> None:
        """
        Administrators, and who may act as some: the same people, or the same code.

        Headers without a user are the client's fault: 400; kube-apiserver answers 500.
        """
        other = KubeAPIServer()
        self.addCleanup(deferToThread, other.stop)
        await deferToThread(other.start)
        for made in (ROLE, BINDING):
            plural = f"{str(made['kind']).lower()}s"
            path = f"/apis/{RBAC}/{plural}"
            answer = await deferToThread(other.ask, "POST", path, json.dumps(made).encode())
            self.assertEqual(answer.code, 201, answer.document)
        await self.admin.create(kinds.CLUSTERROLES.resource, ROLE)
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, BINDING)
        pki().issue_user("actor", [])
        there = int(other.url.rpartition(":")[2])
        here: int = self.server.address.port  # type: ignore[union-attr]
        different: list[Any] = []
        for user in ("admin", "actor"):
            for asked in ASKED:
                answers = [
                    # kube-apiserver authenticates only its recorder, which impersonates the actor.
                    await deferToThread(self.said, there, "", user, asked),
                    await deferToThread(self.said, here, user, user, asked),
                ]
                if not any(name == "Impersonate-User" for name, _ in asked):
                    self.assertEqual(answers, [500, 400], (user, asked))
                elif answers[1] != answers[0]:
                    different.append((user, asked, *answers))
        self.assertEqual(different, [])

    def said(self, port: int, shown: str, user: str, asked: Headers) -> Any:
        """The user that is answered as, or the code of a refusal."""
        context = ssl._create_unverified_context()
        headers = [("Content-Type", "application/json"), *asked]
        if shown:
            pair = pki().pair(f"user-{shown}")
            context.load_cert_chain(pair.certificate, pair.key)
        else:
            token = TOKEN if user == "admin" else "acting"
            headers.append(("Authorization", f"Bearer {token}"))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        connection.putrequest("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        for name, value in [*headers, ("Content-Length", str(len(REVIEW)))]:
            connection.putheader(name, value)
        connection.endheaders(REVIEW.encode())
        response = connection.getresponse()
        body = response.read()
        connection.close()
        # What kube-apiserver says of what makes no sense is no JSON.
        return json.loads(body)["status"]["userInfo"] if response.status == 201 else response.status
