"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.policies`.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.aggregated.admission.webhooks import (
    AdmissionCase,
    creating,
    deleting,
    machine,
    opening,
    rule,
)
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.aggregated.admission import objects


class PolicyCase(AdmissionCase):
    """Policies on machines."""

    async def policy(
        self,
        *validations: Object,
        name: str = "policy",
        binding: Object | None = None,
        constraints: Object | None = None,
        kinds: tuple[Any, Any] = (
            objects.VALIDATING_POLICIES,
            objects.VALIDATING_BINDINGS,
        ),
        **more: Any,
    ) -> None:
        """The host has a policy and a binding of it."""
        spec = {
            "matchConstraints": constraints or {"resourceRules": [rule(resources=("*/*",))]},
            "validations": list(validations),
            **more,
        }
        policies, bindings = kinds
        await self.put(policies[0], name, spec=spec)
        bound = {"policyName": name, "validationActions": ["Deny"], **(binding or {})}
        await self.put(bindings[0], f"{name}-binding", spec=bound)


class ValidatingTests(PolicyCase):
    """ValidatingAdmissionPolicies."""

    async def test_denied(self) -> None:
        """A validation that is false refuses, in Kubernetes' words."""
        await self.policy({"expression": "object.spec.machineClassRef.name != 'small'"})
        error = await self.refusal(self.admission.admit(creating()))
        denied = (
            "ValidatingAdmissionPolicy 'policy' with binding 'policy-binding' denied request: "
            "failed expression: object.spec.machineClassRef.name != 'small'"
        )
        self.assertEqual(
            error.message, f'machines.compute.ironcore.dev "vm" is forbidden: {denied}'
        )
        self.assertEqual((error.code, error.reason), (422, "Invalid"))
        self.assertEqual(error.details["causes"], [{"message": denied}])

    async def test_words(self) -> None:
        """The message that the policy gives, or makes; its reason gives the code."""
        validation = {"expression": "false", "message": "as I said", "reason": "Forbidden"}
        made = {**validation, "messageExpression": "'name: ' + object.metadata.name"}
        bad = {**validation, "messageExpression": "object.nothing"}
        for number, (told, words) in enumerate(
            ((validation, "as I said"), (made, "name: vm"), (bad, "as I said"))
        ):
            await self.policy(told, name=f"p{number}")
            error = await self.refusal(self.admission.admit(creating()))
            self.assertTrue(error.message.endswith(f"denied request: {words}"), error.message)
            self.assertEqual((error.code, error.reason), (403, "Forbidden"))
            await self.client.delete(objects.VALIDATING_BINDINGS[0], f"p{number}-binding")
        await self.admission.admit(creating())  # a policy without a binding has no effect

    async def test_variables(self) -> None:
        """Variables build on each other; the namespace is available too."""
        await self.policy(
            {"expression": "variables.both == 'a/vm'"},
            {"expression": "variables.bad == 1 || true"},
            variables=[
                {"name": "team", "expression": "namespaceObject.metadata.labels.team"},
                {"name": "both", "expression": "variables.team + '/' + object.metadata.name"},
                {"name": "bad", "expression": "object.nothing"},
            ],
        )
        await self.admission.admit(creating())
        await self.refusal(self.admission.admit(creating(machine("other"))))

    async def test_delete_and_connect(self) -> None:
        """A delete has the old object; a stream has its options and name."""
        await self.policy(
            {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'vm'"},
            {"expression": "request.operation != 'CONNECT' || request.name == 'mine'"},
        )
        await self.refusal(self.admission.admit(deleting()))
        await self.admission.admit(deleting(machine("other")))
        await self.refusal(self.admission.admit_opening(opening("theirs")))
        await self.admission.admit_opening(opening("mine"))

    async def test_warned(self) -> None:
        """A binding may warn instead; ``Audit`` alone says nothing to the client."""
        await self.policy(
            {"expression": "false", "message": "careful"},
            binding={"validationActions": ["Warn", "Audit"]},
        )
        change = creating()
        await self.admission.admit(change)
        self.assertEqual(
            change.warnings,
            [
                "Validation failed for ValidatingAdmissionPolicy 'policy' with binding "
                "'policy-binding': careful"
            ],
        )

    async def test_binding_chooses(self) -> None:
        """A binding narrows what its policy is about; conditions do as well."""
        await self.policy(
            {"expression": "false"},
            binding={"matchResources": {"namespaceSelector": {"matchLabels": {"team": "b"}}}},
        )
        await self.policy(
            {"expression": "false"},
            name="other",
            matchConditions=[{"name": "c", "expression": "request.userInfo.username == 'bob'"}],
        )
        await self.admission.admit(creating())

    async def test_cannot_be_evaluated(self) -> None:
        """Refused by name and with the remedy, unless its failurePolicy is Ignore."""
        unknown = {"expression": "quantity('1').isGreaterThan(quantity('0'))"}
        remedy = "excludeResourceRules, or set failurePolicy: Ignore"
        failing: tuple[tuple[str, Object], ...] = (
            (remedy, {"validations": [unknown]}),
            ("no such key: nothing", {"validations": [{"expression": "object.nothing == 1"}]}),
            (remedy, {"matchConditions": [{"name": "c", "expression": "quantity('1') == 1"}]}),
            (
                "no such key: nothing",
                {"auditAnnotations": [{"key": "k", "valueExpression": "object.nothing"}]},
            ),
            (remedy, {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
        )
        for number, (words, told) in enumerate(failing):
            binding = {"paramRef": {"name": "p"}} if "paramKind" in told else {}
            await self.policy(name=f"p{number}", binding=binding, **told)
            error = await self.refusal(self.admission.admit(creating()))
            self.assertEqual(error.code, 422)
            self.assertIn(f"ValidatingAdmissionPolicy 'p{number}'", error.message)
            self.assertTrue(error.message.endswith(words), error.message)
            await self.client.delete(objects.VALIDATING_POLICIES[0], f"p{number}")
            await self.policy(name=f"i{number}", binding=binding, failurePolicy="Ignore", **told)
            await self.admission.admit(creating())

    async def test_unbound(self) -> None:
        """A policy without binding has no effect, nor a binding without policy."""
        spec = {"matchConstraints": {}, "validations": [{"expression": "false"}]}
        await self.put(objects.VALIDATING_POLICIES[0], "policy", spec=spec)
        await self.put(objects.VALIDATING_BINDINGS[0], "b", spec={"policyName": "gone"})
        await self.admission.admit(creating())

    async def test_unknown_namespace(self) -> None:
        """
        If the namespace's labels matter and the namespace is unknown, the failure policy decides.
        """
        chosen = {"namespaceSelector": {"matchLabels": {"team": "b"}}}
        await self.policy({"expression": "true"}, constraints=chosen)
        new = machine()
        new["metadata"]["namespace"] = "nowhere"
        error = await self.refusal(self.admission.admit(creating(new)))
        self.assertIn('failed to configure: namespaces "nowhere" not found', error.message)


class MutatingTests(PolicyCase):
    """MutatingAdmissionPolicies, which this server does not support."""

    async def mutating(self, name: str = "policy", **more: Any) -> None:
        """The host has one."""
        kinds = (objects.MUTATING_POLICIES, objects.MUTATING_BINDINGS)
        await self.policy(name=name, kinds=kinds, **more)

    async def test_refused(self) -> None:
        """A matching policy refuses the request, whatever its binding's actions."""
        await self.mutating()
        for asking in (
            self.admission.mutate(creating()),
            self.admission.admit(deleting()),
            self.admission.admit_opening(opening()),
        ):
            error = await self.refusal(asking)
            self.assertEqual((error.code, error.reason), (403, "Forbidden"))
            self.assertIn(
                "MutatingAdmissionPolicy 'policy' with binding 'policy-binding' denied request: "
                "this server carries out no MutatingAdmissionPolicy",
                error.message,
            )

    async def test_passed(self) -> None:
        """A policy that does not match, or ignores failures, does not."""
        await self.mutating(constraints={"resourceRules": [rule(resources=("pods",))]})
        await self.mutating("second", failurePolicy="Ignore")
        condition = {"name": "c", "expression": "false"}
        await self.mutating("third", matchConditions=[condition])
        self.assertEqual(await self.admission.mutate(creating()), machine())
