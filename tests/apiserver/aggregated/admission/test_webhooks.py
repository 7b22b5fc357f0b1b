"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.webhooks`, over real TLS.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.apiserver.aggregated.admission.webhooks import (
    GROUP,
    NEVER,
    AdmissionCase,
    allow,
    creating,
    deleting,
    deny,
    machine,
    opening,
    patch,
    rule,
    updating,
)
from tests.tls.support import reactor, server_identity
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.aggregated.admission.objects import VALIDATING_WEBHOOKS
from twisted_exec.apiserver.aggregated.admission.webhook_connections import MAX_RESPONSE_BYTES
from twisted_exec.tls.server import ServerTLS

CONFIGURATIONS = VALIDATING_WEBHOOKS[0]


class ReviewTests(AdmissionCase):
    """The review that a webhook receives."""

    async def asked(self) -> None:
        """The review contains the whole request."""
        await self.validating(
            self.webhook("look", allow, rule(resources=("*/*",)), timeoutSeconds=29)
        )

    async def test_create(self) -> None:
        """A review of a create has the whole request, as from kube-apiserver."""
        await self.asked()
        new = machine()
        await self.admission.admit(
            creating(new, dry_run=True, options={"dryRun": ["All"], "fieldManager": "me"})
        )
        ((name, query, review),) = self.hooks.asked
        self.assertEqual((name, query), ("look", b"timeout=29s"))
        self.assertEqual(review["kind"], "AdmissionReview")
        self.assertEqual(review["apiVersion"], "admission.k8s.io/v1")
        request = review["request"]
        uuid.UUID(request.pop("uid"))
        kind = {"group": GROUP, "version": "v1alpha1", "kind": "Machine"}
        resource = {"group": GROUP, "version": "v1alpha1", "resource": "machines"}
        self.assertEqual(
            request,
            {
                "kind": kind,
                "resource": resource,
                "requestKind": kind,
                "requestResource": resource,
                "name": "vm",
                "namespace": "default",
                "operation": "CREATE",
                "userInfo": {
                    "username": "jane",
                    "uid": "u-1",
                    "groups": ["dev", "system:authenticated"],
                    "extra": {"scopes": ["a", "b"]},
                },
                "object": new,
                "oldObject": None,
                "dryRun": True,
                "options": {
                    "kind": "CreateOptions",
                    "apiVersion": "meta.k8s.io/v1",
                    "dryRun": ["All"],
                    "fieldManager": "me",
                },
            },
        )

    async def test_status(self) -> None:
        """Subresource and both objects are included."""
        await self.asked()
        old, new = machine(), machine(a="b")
        await self.admission.admit(updating(new, old, subresource="status"))
        request = self.hooks.asked[0][2]["request"]
        self.assertEqual((request["object"], request["oldObject"]), (new, old))
        self.assertEqual((request["subResource"], request["requestSubResource"]), ("status",) * 2)
        self.assertEqual((request["operation"], request["dryRun"]), ("UPDATE", False))
        self.assertEqual(request["options"]["kind"], "UpdateOptions")

    async def test_delete(self) -> None:
        """A delete has the old object, and no new one."""
        await self.asked()
        await self.admission.admit(deleting())
        request = self.hooks.asked[0][2]["request"]
        self.assertEqual((request["object"], request["oldObject"]), (None, machine()))
        self.assertEqual((request["operation"], request["name"]), ("DELETE", "vm"))
        self.assertEqual(request["options"]["kind"], "DeleteOptions")

    async def test_connect(self) -> None:
        """A stream is reviewed by its options, whose kind is the review's."""
        await self.asked()
        await self.admission.admit_opening(opening())
        request = self.hooks.asked[0][2]["request"]
        self.assertEqual(request["operation"], "CONNECT")
        self.assertEqual(request["kind"]["kind"], "MachineExecOptions")
        self.assertEqual(request["resource"]["resource"], "machines")
        self.assertEqual((request["subResource"], request["name"]), ("exec", "vm"))
        self.assertEqual(request["object"]["kind"], "MachineExecOptions")
        self.assertEqual((request["oldObject"], request["options"]), (None, None))

    async def test_v1beta1(self) -> None:
        """A webhook with only the older version gets that; its response may omit the UID."""
        reply = {"response": {"allowed": False, "status": {"message": "no"}}}
        await self.validating(
            self.webhook(
                "old",
                lambda request: json.dumps(reply).encode(),
                admissionReviewVersions=["v7", "v1beta1", "v1"],
            )
        )
        error = await self.refusal(self.admission.admit(creating()))
        self.assertEqual(self.hooks.asked[0][2]["apiVersion"], "admission.k8s.io/v1beta1")
        self.assertIn("denied the request: no", error.message)


class DecisionTests(AdmissionCase):
    """Effects of a webhook's response."""

    async def test_allowed(self) -> None:
        """Yes lets the request pass, and tells the client what it is warned of."""
        await self.validating(
            self.webhook(
                "yes", lambda request: {"warnings": ["w 1"], "auditAnnotations": {"k": "v"}}
            )
        )
        change = creating()
        await self.admission.admit(change)
        self.assertEqual(change.warnings, ["w 1"])

    async def test_denied(self) -> None:
        """One denial refuses the request with the message of Kubernetes, by default with 400."""
        await self.validating(
            self.webhook("a", allow), self.webhook("b", deny("not on Fridays")), name="z"
        )
        error = await self.refusal(self.admission.admit(creating()))
        self.assertEqual(
            error.to_status(),
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": 'admission webhook "b.example.com" denied the request: not on Fridays',
                "code": 400,
            },
        )
        self.assertEqual(sorted(self.names()), ["a", "b"])

    async def test_denied_with_more(self) -> None:
        """Code, reason and details are the webhook's; several lines stay lines."""
        status = {"code": 422, "reason": "Invalid", "details": {"name": "vm", "causes": []}}
        await self.validating(self.webhook("no", deny("two\n\x1blines", **status)))
        error = await self.refusal(self.admission.admit(creating()))
        self.assertEqual((error.code, error.reason), (422, "Invalid"))
        self.assertEqual(error.details["name"], "vm")
        self.assertTrue(error.message.endswith("denied the request: two\nlines"), error.message)

    async def test_denied_without_words(self) -> None:
        """A denial without a reason says so; the code of a success does not count."""
        for status, told in (
            ({}, "denied the request without explanation"),
            ({"reason": "Forbidden", "code": 200}, "denied the request: Forbidden"),
        ):
            await self.validating(self.webhook("no", deny(**status)), name=f"c{len(told)}")
            error = await self.refusal(self.admission.admit(creating()))
            self.assertTrue(error.message.endswith(told), error.message)
            self.assertEqual(error.code, 400)
            await self.client.delete(CONFIGURATIONS, f"c{len(told)}")

    async def test_changes_are_followed(self) -> None:
        """A webhook configuration takes effect once created, and none once deleted."""
        await self.admission.admit(creating())
        await self.validating(self.webhook("no", deny("no")))
        await self.refusal(self.admission.admit(creating()))
        await self.client.delete(CONFIGURATIONS, "config")
        await self.admission.admit(creating())
        self.assertEqual(self.names(), ["no"])

    async def test_namespace_selector(self) -> None:
        """The labels of the object's namespace choose; a namespace made just now is known."""
        chosen = {"matchLabels": {"team": "b"}}
        await self.validating(self.webhook("no", deny("no"), namespaceSelector=chosen))
        await self.admission.admit(creating())
        await self.put(kinds.NAMESPACES.resource, "other", labels={"team": "b"})
        new = machine()
        new["metadata"]["namespace"] = "other"
        await self.refusal(self.admission.admit(creating(new)))
        new["metadata"]["namespace"] = "nowhere"
        error = await self.refusal(self.admission.admit(creating(new)))
        self.assertEqual((error.code, error.message), (404, 'namespaces "nowhere" not found'))

    async def test_dry_run(self) -> None:
        """A webhook with side effects is not called for a dry run, which is refused."""
        await self.validating(self.webhook("some", allow, sideEffects="Some"))
        error = await self.refusal(self.admission.admit(creating(dry_run=True)))
        self.assertEqual(
            (error.code, error.message),
            (400, 'admission webhook "some.example.com" does not support dry run'),
        )
        self.assertEqual(self.names(), [])
        await self.admission.admit(creating())
        self.assertEqual(self.names(), ["some"])

    async def test_match_conditions(self) -> None:
        """CEL conditions apply; a failing one refuses, or skips the webhook by failurePolicy."""

        def when(expression: str, **more: Any) -> Object:
            condition = {"name": "c", "expression": expression}
            return self.webhook("no", deny("no"), matchConditions=[condition], **more)

        for expression, code in (
            ("request.userInfo.username == 'bob'", 0),
            ("object.spec.machineClassRef.name == 'small' && oldObject == null", 400),
            ("object.spec.nothing == 1", 403),
            ("authorizer.group('').resource('pods').check('get').allowed()", 403),
        ):
            await self.validating(when(expression))
            asking = self.admission.admit(creating())
            if code:
                error = await self.refusal(asking)
                self.assertEqual(error.code, code, error.message)
            else:
                await asking
            await self.client.delete(CONFIGURATIONS, "config")
        self.assertIn('matchConditions of admission webhook "no.example.com"', error.message)
        await self.validating(when("object.spec.nothing == 1", failurePolicy="Ignore"))
        await self.admission.admit(creating())
        self.assertEqual(self.names(), ["no"])

    async def test_refuses_deletes_and_streams(self) -> None:
        """Mutating webhooks may refuse deletes and streams; their changes are ignored."""
        await self.mutating(
            self.webhook("no", deny("no"), rule("DELETE", "CONNECT", resources=("*/*",)))
        )
        for asking in (self.admission.admit(deleting()), self.admission.admit_opening(opening())):
            self.assertIn("denied", (await self.refusal(asking)).message)
        self.hooks.replies["no"] = lambda request: patch({"op": "add", "path": "/a", "value": 1})
        error = await self.refusal(self.admission.admit(deleting()))
        self.assertEqual(error.code, 500)
        self.assertIn("attempted to modify the object", error.message)


class FailureTests(AdmissionCase):
    """Failed calls."""

    async def failing(self, reply: Any, told: str, **more: Any) -> None:
        """Check that the failed call refuses with 500, unless failurePolicy is Ignore."""
        hook = self.webhook("bad", reply, **more)
        await self.validating(hook, {**hook, "failurePolicy": "Ignore", "name": "second"})
        error = await self.refusal(self.admission.admit(creating()))
        self.assertEqual((error.code, error.reason), (500, "InternalError"))
        begin = 'Internal error occurred: failed calling webhook "bad.example.com": '
        self.assertTrue(error.message.startswith(begin), error.message)
        self.assertIn(told, error.message)
        await self.client.delete(CONFIGURATIONS, "config")
        await self.validating({**hook, "failurePolicy": "Ignore"})
        await self.admission.admit(creating())

    async def test_down(self) -> None:
        """The connection is refused."""
        nobody = {"url": "https://localhost:1/x"}
        await self.failing(allow, "failed to call webhook: cannot reach", clientConfig=nobody)

    async def test_slow(self) -> None:
        """The webhook does not answer within timeoutSeconds."""
        await self.failing(lambda request: NEVER, "did not answer in time", timeoutSeconds=1)

    async def test_other_ca(self) -> None:
        """Without a CA in the configuration, the certificate must be of a CA of the system."""
        url = f"{self.hooks.url}/bad"
        await self.failing(allow, "not signed by a trusted CA", clientConfig={"url": url})

    async def test_other_name(self) -> None:
        """The webhook's certificate is of the right CA, but for another name."""
        shown = server_identity("other.example")
        files = [
            self.write("other.crt", shown.certificate_pem),
            self.write("other.key", shown.key_pem),
        ]
        port = await self.listen(self.site, ServerTLS(*files, clock=reactor))
        told = self.webhook("bad", allow)["clientConfig"]
        url = f"https://localhost:{port.getHost().port}/bad"
        await self.failing(allow, 'is not valid for "localhost"', clientConfig={**told, "url": url})
        self.assertEqual(self.names(), [])

    async def test_redirect(self) -> None:
        """Redirects are not followed."""
        await self.failing(
            lambda request: (307, {"Location": f"{self.hooks.url}/other"}, b""),
            "answered 307; redirects are not followed",
        )
        self.assertEqual(set(self.names()), {"bad"})

    async def test_error(self) -> None:
        """It answers an error."""
        await self.failing(lambda request: (503, {}, b"{}"), "answered 503")

    async def test_oversized(self) -> None:
        """Answers larger than the limit are refused."""
        await self.failing(
            lambda request: b" " * (MAX_RESPONSE_BYTES * 2), "the server's answer is larger than"
        )

    async def test_nonsense(self) -> None:
        """The answer is not an AdmissionReview."""
        for raw, told in (
            (b"<html>", "it is not JSON"),
            (b"[" * 100_000, "it is not JSON"),
            (b"[]", "it is not an AdmissionReview"),
            (b"{}", "webhook response was absent"),
        ):
            await self.failing(lambda request, raw=raw: raw, f"invalid webhook response: {told}")
            await self.client.delete(CONFIGURATIONS, "config")

    async def test_wrong_answers(self) -> None:
        """A wrong UID, a field of a wrong type or a patch of a validating webhook is a failure."""
        for response, told in (
            ({"uid": "u"}, 'expected response.uid="'),
            ({"allowed": "yes"}, "response.allowed is not a boolean"),
            ({"warnings": "w"}, "response.warnings is not a list of strings"),
            ({"status": ["no"]}, "response.status is not an object"),
            (patch(), "validating webhook may not return response.patch"),
            ({"patchType": "JSONPatch"}, "validating webhook may not return response.patchType"),
        ):
            await self.failing(lambda request, told=response: told, told)
            await self.client.delete(CONFIGURATIONS, "config")

    async def test_unknown_versions(self) -> None:
        """The webhook knows none of our versions."""
        await self.failing(allow, "known AdmissionReview versions", admissionReviewVersions=["v9"])
        self.assertEqual(self.names(), [])

    async def test_nowhere(self) -> None:
        """The configuration has no address, or a URL without TLS."""
        for where in ({}, {"url": "http://localhost/"}):
            await self.failing(
                allow, "must have either service or an https URL", clientConfig=where
            )
            await self.client.delete(CONFIGURATIONS, "config")


class MutationTests(AdmissionCase):
    """Webhooks that change objects."""

    @staticmethod
    def label(name: str, value: str = "x") -> Any:
        """A reply that sets a label."""

        def reply(request: Object) -> Object:
            labels = {**(request["object"]["metadata"].get("labels") or {}), name: value}
            return patch({"op": "add", "path": "/metadata/labels", "value": labels})

        return reply

    async def test_in_order(self) -> None:
        """Webhooks run in order of configuration names; each sees earlier changes."""
        await self.mutating(self.webhook("late", self.label("late")), name="z")
        await self.mutating(
            self.webhook("early", self.label("early")),
            self.webhook("second", self.label("second")),
            name="a",
        )
        given = machine()
        changed = await self.admission.mutate(creating(given))
        self.assertEqual(given, machine())
        self.assertEqual(list(changed["metadata"]["labels"]), ["early", "second", "late"])
        self.assertEqual(self.names(), ["early", "second", "late"])

    async def test_reinvoked(self) -> None:
        """A reinvocable webhook sees later changes once more; others do not."""
        await self.mutating(
            self.webhook("a", self.label("a"), reinvocationPolicy="IfNeeded"),
            self.webhook("b", self.label("b")),
            self.webhook("c", allow, reinvocationPolicy="IfNeeded"),
        )
        await self.admission.mutate(creating())
        self.assertEqual(self.names(), ["a", "b", "c", "a"])

    async def test_not_reinvoked(self) -> None:
        """Without changes each webhook is called once."""
        await self.mutating(self.webhook("a", allow, reinvocationPolicy="IfNeeded"))
        self.assertEqual(await self.admission.mutate(creating()), machine())
        self.assertEqual(self.names(), ["a"])

    async def test_change_selects(self) -> None:
        """A label set by a webhook counts for the object selectors of later webhooks."""
        selector = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
        await self.mutating(
            self.webhook("before", allow, objectSelector=selector),
            self.webhook("a", self.label("a")),
            self.webhook("after", allow, objectSelector=selector),
        )
        await self.admission.mutate(creating())
        self.assertEqual(self.names(), ["a", "after"])

    async def test_bad_patch(self) -> None:
        """A patch that cannot be carried out refuses, whatever the failurePolicy."""
        replies = (
            patch({"op": "remove", "path": "/spec/nothing"}),
            patch({"op": "nonsense", "path": "/spec"}),
            patch({"op": "replace", "path": "", "value": 1}),
            patch({"op": "replace", "path": "/metadata", "value": 1}),
        )
        for number, told in enumerate(replies):
            hook = self.webhook("bad", lambda request, told=told: told, failurePolicy="Ignore")
            await self.mutating(hook, name=f"c-{number}")
            error = await self.refusal(self.admission.mutate(creating()))
            self.assertEqual(error.code, 500)
            self.assertIn('patch of admission webhook "bad.example.com"', error.message)

    async def test_invalid_patch(self) -> None:
        """A malformed patch makes the response invalid."""
        for told in (
            {"patch": "e30=", "patchType": "JSONPatch"},
            {"patch": "!", "patchType": "JSONPatch"},
            {"patch": "W10="},
            {"patchType": "JSONPatch"},
            {"patch": "W10=", "patchType": "Merge"},
        ):
            hook = self.webhook("bad", lambda request, told=told: told)
            await self.mutating(hook, name=f"c-{abs(hash(str(told)))}")
            error = await self.refusal(self.admission.mutate(creating()))
            self.assertIn("received invalid webhook response", error.message)
