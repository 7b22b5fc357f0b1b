"""
Tests for who manages what, and for what patches are refused: the answers of a
real kube-apiserver to the same requests are the measure.

``tests/captures/kube-apiserver-1.33.1-apply.json`` has what kube-apiserver 1.33.1
answered to :mod:`tests.apiserver.apply_scenarios`, with our kinds as custom
resources; :mod:`tests.interop.kube_apiserver` asks it again.
"""

from __future__ import annotations

import json
from typing import Any

from .apply_scenarios import JSON_PATCH, SCENARIOS, Step
from .recorded import RECORDED, Answer, Steps, alike, answer_of
from .support import APITestCase

REAL = {name: [alike(answer) for answer in answers] for name, answers in RECORDED.items()}


class ScenarioTestCase(APITestCase):
    """Runs scenarios on our server."""

    def answers(self, name: str) -> list[dict[str, Any]]:
        """Our response to each step."""
        steps = Steps()
        return [self._answer(step, steps) for step in SCENARIOS[name]]

    def _answer(self, step: Step, steps: Steps) -> dict[str, Any]:
        self.clock.advance(2)
        steps.begin(self.clock.seconds())
        response = self.ask(
            step.method,
            step.path,
            steps.raw(step),
            content_type=step.content_type,
            headers=[("User-Agent", step.agent)],
        )
        headers = {"Warning": response.headers["warning"]} if "warning" in response.headers else {}
        answer = Answer(response.code, response.json(), headers)
        steps.ended(answer)
        return alike(answer_of(answer, steps))

    def check(self, name: str) -> None:
        """Ours answers as the real one did."""
        for number, ours in enumerate(self.answers(name)):
            self.assertEqual(ours, REAL[name][number], f"{name}, step {number}")


class OwnershipTests(ScenarioTestCase):
    """``metadata.managedFields``, and what server-side apply makes of objects."""

    def test_create(self) -> None:
        """The creator manages all fields of the object, and the defaults."""
        self.check("create")

    def test_user_agent(self) -> None:
        """A manager that is not named is the program before the first slash of its User-Agent."""
        self.check("create by user agent")

    def test_updates(self) -> None:
        """A change takes its fields from whoever had them; no change takes nothing."""
        self.check("updates")

    def test_list_items(self) -> None:
        """Items that their keys tell apart have managers of their own."""
        self.check("update of list items")

    def test_apply_creates(self) -> None:
        """An apply makes what is missing; the same again changes nothing, not even times."""
        self.check("apply creates")

    def test_apply_agrees(self) -> None:
        """Applying equal values shares ownership."""
        self.check("apply agrees")

    def test_apply_changes(self) -> None:
        """A manager changes freely what it has alone."""
        self.check("apply changes its own")

    def test_conflicts(self) -> None:
        """Other values than another's are refused, unless forced; then they are taken."""
        self.check("apply conflicts")

    def test_conflicts_with_updates(self) -> None:
        """Everyone who has a field is named, with the field."""
        self.check("apply conflicts with updates")

    def test_drops(self) -> None:
        """Fields that are no longer applied are removed, unless another manager has them."""
        self.check("apply drops")

    def test_drops_what_was_taken(self) -> None:
        """Fields that another manager has taken over stay."""
        self.check("apply drops what others updated")

    def test_drops_items(self) -> None:
        """Items go, or keep what others have of them."""
        self.check("apply drops items")

    def test_order(self) -> None:
        """Items come in the order that is applied; others keep their places between them."""
        self.check("apply orders items")

    def test_sets(self) -> None:
        """Finalizers are managed one by one."""
        self.check("apply sets")

    def test_owners(self) -> None:
        """So are owner references, by their UIDs."""
        self.check("apply owners")

    def test_atomic(self) -> None:
        """Atomic values conflict as a whole."""
        self.check("apply what is atomic")

    def test_nothing_and_null(self) -> None:
        """Empty and null parts are managed, and say nothing."""
        self.check("apply nothing and null")

    def test_free_content(self) -> None:
        """Content without a schema merges as it comes."""
        self.check("apply free content")

    def test_status(self) -> None:
        """The status has managers of its own, through its subresource only."""
        self.check("status")

    def test_apply_status(self) -> None:
        """And can be applied, there."""
        self.check("apply status")

    def test_reset(self) -> None:
        """One empty entry ends the tracking until the next apply; an empty list does not."""
        self.check("reset")

    def test_told(self) -> None:
        """Writers may tell other entries; garbage changes nothing."""
        *ours, refused, made = self.answers("told")
        *real, _, real_made = REAL["told"]
        self.assertEqual([*ours, made], [*real, real_made])
        self.assertEqual((refused["code"], refused["reason"]), (422, "Invalid"))

    def test_told_through_status(self) -> None:
        """But not through the status."""
        self.check("told through status")

    def test_capped(self) -> None:
        """Beyond ten, the oldest updates become one entry."""
        self.check("capped")

    def test_client_side_apply(self) -> None:
        """kubectl goes on server-side with what it applied client-side, and keeps its note true."""
        self.check("client-side apply becomes server-side")

    def test_client_side_apply_meanwhile(self) -> None:
        """But not with what others have changed since."""
        self.check("client-side apply that others changed")

    def test_dry_run(self) -> None:
        """A dry run tells what would be, and nothing is."""
        self.check("dry run")

    def test_roles(self) -> None:
        """Rules, subjects and role references are one value each."""
        self.check("roles")

    def test_namespaces(self) -> None:
        """Fields of the server itself have no manager."""
        self.check("namespaces")

    def test_classes(self) -> None:
        """Capabilities are managed one by one."""
        self.check("classes")

    def test_leases(self) -> None:
        """Kinds of Go structs begin with an empty spec there; here with none."""
        told = json.dumps(self.answers("leases")).replace('".": {}, ', "").replace(', ".": {}', "")
        real = json.dumps(REAL["leases"]).replace('".": {}, ', "")
        self.assertEqual(json.loads(told), json.loads(real))

    def test_versions(self) -> None:
        """A version in what is applied must be the current one; a UID must be the object's."""
        self.check("versions in what is applied")


class RefusalTests(ScenarioTestCase):
    """
    Refusals equal those of kube-apiserver: code, reason and, except for text of Go's
    parsers, the message.  Deliberate differences are all listed here.
    """

    def refusals(self, name: str) -> list[tuple[Step, dict[str, Any], dict[str, Any]]]:
        """Steps, with what ours and the real one answered."""
        return list(zip(SCENARIOS[name], self.answers(name), REAL[name], strict=True))

    def test_options(self) -> None:
        """Unknown values of options, per verb."""
        for step, ours, real in self.refusals("options that are refused"):
            self.assertEqual(ours, real, step)

    def test_applies(self) -> None:
        """
        Invalid apply configurations are refused.  Difference: a configuration that does not
        fit the schema is the client's mistake, so it gets 400 here, 500 from kube-apiserver.
        """
        for step, ours, real in self.refusals("what apply refuses"):
            if real["code"] == 500:
                real = {**real, "code": 400, "reason": "BadRequest"}
            self.assertEqual(_gist(ours, real), _gist(real, real), step)

    def test_patches(self) -> None:
        """Malformed patches, and those that cannot be applied."""
        for step, ours, real in self.refusals("patches that are refused"):
            if not self._departs(step, ours, real):
                self.assertEqual(_gist(ours, real), _gist(real, real), step)

    def _departs(self, step: Step, ours: dict[str, Any], real: dict[str, Any]) -> bool:
        if "strategic" in step.content_type:
            # The default of kubectl patch: it works here as the user means it.
            self.assertEqual((ours["code"], real["code"]), (200, 415))
        elif real["code"] == 500:
            self.assertEqual(ours["code"], 409)  # a version that was never one: not this one
        elif step.content_type == JSON_PATCH and '"copy"' in json.dumps(step.body):
            # RFC 6902: "the from location MUST exist"; there it is null.
            self.assertEqual((ours["code"], real["code"]), (422, 200))
        elif '"extra"' in json.dumps(step.body):
            # RFC 6902: members that are not defined "MUST be ignored"; there Strict refuses them.
            self.assertEqual((ours["code"], real["code"]), (200, 422))
        else:
            return False
        return True


# Messages of Go's parsers and types, or that quote the whole object:
# only code and reason are compared; other tests check our messages.
_OTHER_WORDS = (
    "error decoding",
    "error strict decoding YAML",
    "Invalid JSON Patch",
    "the server rejected our request due to an error in our request",
    "the body of the request was in an unknown format",
    "415: Unsupported Media Type",
    ' "" is invalid: patch: Invalid value: ',
    'Machine.compute.ironcore.dev "m" is invalid: spec: Invalid value: "null"',
    'Machine.compute.ironcore.dev "m" is invalid: [spec.power: Invalid value: "integer"',
    'Machine "m" is invalid: apiVersion',
    'Pool.compute.ironcore.dev "m" is invalid: kind',
)


def _gist(answer: dict[str, Any], real: dict[str, Any]) -> dict[str, Any]:
    """The compared part of a response, given the real one."""
    if answer["code"] < 300:
        return {"code": answer["code"], "spec": answer.get("spec")}
    told = {"code": answer["code"], "reason": answer["reason"]}
    if not real["message"].startswith(_OTHER_WORDS):
        words = answer["message"].partition(", got ")[0]  # a value in Go's notation follows
        told["message"] = words.replace('"On", "Off"', '"Off", "On"')
    return told
