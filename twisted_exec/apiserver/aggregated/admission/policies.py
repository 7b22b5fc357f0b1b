"""
The host's admission policies: rules in CEL that it keeps itself, and bindings that put them to use.

A ValidatingAdmissionPolicy is evaluated for each of its bindings that is about the request; what
of it cannot be evaluated here counts as an error, which refuses unless its ``failurePolicy`` is
``Ignore``.  Parameters (``paramKind``) are not read, and a MutatingAdmissionPolicy, whose expressions
make objects of the host's types, is not carried out: both are such errors.  So no policy that is
about a request is passed by unless it says that it may be.  Source:
``k8s.io/apiserver/pkg/admission/plugin/policy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.admission.cel import (
    Cel,
    Conditions,
    Undecided,
    Unsupported,
    decided,
    values_of,
)
from twisted_exec.apiserver.aggregated.admission.hooks import Condition, conditions
from twisted_exec.apiserver.aggregated.admission.matching import Asked, Reach, policy_reach
from twisted_exec.apiserver.aggregated.admission.review import shown
from twisted_exec.apiserver.aggregated.admission.sources import Followed
from twisted_exec.apiserver.aggregated.admission.webhooks import Matching

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}
_LONGEST_MESSAGE = 5 << 10
_REMEDY = (
    "exempt what this server serves by matchConstraints.excludeResourceRules, or set "
    "failurePolicy: Ignore"
)


@dataclass(frozen=True)
class Validation:
    """One of ``validations``."""

    expression: str
    message: str
    message_expression: str
    reason: str


@dataclass(frozen=True)
class Binding:
    """:param actions: what happens when a validation fails: ``Deny``, ``Warn``, ``Audit``."""

    name: str
    reach: Reach
    actions: tuple[str, ...]
    has_params: bool


@dataclass(frozen=True)
class Policy:
    """One policy with its bindings, in the order of their names."""

    name: str
    reach: Reach
    conditions: tuple[Condition, ...]
    variables: tuple[Condition, ...]
    validations: tuple[Validation, ...]
    annotations: tuple[Condition, ...]
    ignores_failures: bool
    takes_params: bool
    bindings: tuple[Binding, ...]


def policies_of(policies: Iterable[Object], bindings: Iterable[Object]) -> list[Policy]:
    """All policies that are put to use, by name."""
    bound: dict[str, list[Binding]] = {}
    for binding in sorted(bindings, key=_name):
        spec = binding.get("spec") or {}
        bound.setdefault(str(spec.get("policyName")), []).append(_binding(_name(binding), spec))
    return [
        _policy(_name(policy), policy.get("spec") or {}, tuple(bound[_name(policy)]))
        for policy in sorted(policies, key=_name)
        if _name(policy) in bound
    ]


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _binding(name: str, spec: Mapping[str, Any]) -> Binding:
    actions = tuple(spec.get("validationActions") or ("Deny",))
    return Binding(
        name, policy_reach(spec.get("matchResources")), actions, bool(spec.get("paramRef"))
    )


def _policy(name: str, spec: Mapping[str, Any], bindings: tuple[Binding, ...]) -> Policy:
    return Policy(
        name,
        policy_reach(spec.get("matchConstraints")),
        conditions(spec.get("matchConditions")),
        conditions(spec.get("variables")),
        tuple(_validation(each) for each in spec.get("validations") or ()),
        tuple(
            Condition(str(each.get("key")), str(each.get("valueExpression")))
            for each in spec.get("auditAnnotations") or ()
        ),
        spec.get("failurePolicy") == "Ignore",
        bool(spec.get("paramKind")),
        bindings,
    )


def _validation(told: Mapping[str, Any]) -> Validation:
    return Validation(
        str(told.get("expression")),
        str(told.get("message") or "").strip(),
        str(told.get("messageExpression") or ""),
        str(told.get("reason") or "Invalid"),
    )


class _Kept:
    """The policies of one kind, read anew when these or their bindings have changed."""

    def __init__(self, policies: Followed, bindings: Followed) -> None:
        self._followed = policies, bindings
        self._generation: tuple[int, ...] = ()
        self._policies: Sequence[Policy] = ()

    async def policies(self) -> Sequence[Policy]:
        """
        :raises ServiceUnavailable: nobody knows yet.
        """
        policies, bindings = [await each.objects() for each in self._followed]
        generation = tuple(each.generation for each in self._followed)
        if generation != self._generation:
            self._policies = policies_of(policies, bindings)
            self._generation = generation
        return self._policies


class _Use:
    """One policy about one request, by one of its bindings."""

    def __init__(self, noun: str, policy: Policy, asked: Asked, binding: Binding) -> None:
        self.policy, self.binding, self.asked = policy, binding, asked
        self.named = f"{noun} '{policy.name}' with binding '{binding.name}'"

    def refusal(self, why: str, reason: str) -> APIError:
        """The answer to a request that the policy does not allow."""
        asked = self.asked
        name, told = asked.name or "Unknown", f"{self.named} denied request: {why}"
        return APIError(
            f'{asked.qualified} "{name}" is forbidden: {told}',
            code=_CODES.get(reason, 422),
            reason=reason,
            details={
                "name": name,
                "group": asked.group,
                "kind": asked.plural,
                "causes": [{"message": told}],
            },
        )


class Policies:
    """
    Asks the host's policies.

    :param validating: ValidatingAdmissionPolicies, and their bindings.
    :param mutating: MutatingAdmissionPolicies, and theirs.
    """

    _log = Logger()

    def __init__(
        self,
        validating: tuple[Followed, Followed],
        mutating: tuple[Followed, Followed],
        matching: Matching,
        cel: Cel,
    ) -> None:
        self._validating, self._mutating = _Kept(*validating), _Kept(*mutating)
        self._matching, self._cel, self._conditions = matching, cel, Conditions(cel)

    async def check_mutating(self, asked: Asked) -> None:
        """
        :raises APIError: a policy would change the object, which cannot be done here.
        """
        for policy in await self._mutating.policies():
            for use in await self._uses("MutatingAdmissionPolicy", policy, asked):
                try:
                    if not await self._counts(use):
                        continue
                    why = Undecided("this server carries out no MutatingAdmissionPolicy")
                except Undecided as problem:
                    why = problem
                self._failed(use, Unsupported(str(why)), "Forbidden")

    async def validate(self, asked: Asked) -> None:
        """
        :raises APIError: a policy does not allow the request; of several the first.
        """
        for policy in await self._validating.policies():
            for use in await self._uses("ValidatingAdmissionPolicy", policy, asked):
                await self._evaluate(use)

    async def _uses(self, noun: str, policy: Policy, asked: Asked) -> Sequence[_Use]:
        """The uses of a policy that are about a request."""
        found = []
        for binding in policy.bindings:
            use = _Use(noun, policy, asked, binding)
            try:
                about = await self._matching.is_about(policy.reach, asked)
                if about and await self._matching.is_about(binding.reach, asked):
                    found.append(use)
            except APIError as error:
                if not policy.ignores_failures:
                    raise use.refusal(f"failed to configure: {error.message}", "Invalid") from None
        return found

    async def _evaluate(self, use: _Use) -> None:
        try:
            if not await self._counts(use):
                return
        except Undecided as why:
            self._failed(use, why)
            return
        values = await self._values(use)
        values["variables"] = self._variables(use.policy, values)
        for validation in use.policy.validations:
            self._validate(use, validation, values)
        for annotation in use.policy.annotations:
            self._annotate(use, annotation, values)

    async def _counts(self, use: _Use) -> bool:
        """
        Whether the policy's conditions hold.

        :raises Undecided: nobody can tell, or it needs what nobody here has.
        """
        if use.policy.takes_params and use.binding.has_params:
            raise Unsupported("its paramKind is not read by this server")
        return self._conditions.hold(use.policy.conditions, use.asked, await self._values(use))

    async def _values(self, use: _Use) -> dict[str, Any]:
        asked = use.asked
        namespace: Object | None = None
        if asked.namespace:
            namespace = await self._matching.namespaces.get(asked.namespace)
        return {**values_of(asked), "namespaceObject": namespace}

    def _variables(self, policy: Policy, values: Mapping[str, Any]) -> Object:
        """Each may name those before it; one that cannot be had is missing where it is used."""
        found: Object = {}
        for variable in policy.variables:
            try:
                told = self._cel.evaluate(variable.expression, {**values, "variables": found})
            except Undecided as why:
                self._log.debug("{name}: {why}", name=policy.name, why=str(why))
            else:
                found[variable.name] = told
        return found

    def _validate(self, use: _Use, validation: Validation, values: Mapping[str, Any]) -> None:
        try:
            if not decided(self._cel.evaluate(validation.expression, values)):
                self._act(use, self._message(validation, values), validation.reason)
        except Undecided as why:
            self._failed(use, why)

    def _message(self, validation: Validation, values: Mapping[str, Any]) -> str:
        told = ""
        if validation.message_expression:
            try:
                told = self._cel.evaluate(validation.message_expression, values)
            except Undecided as why:
                self._log.debug("a messageExpression: {why}", why=str(why))
        told = told.strip() if isinstance(told, str) else ""
        if len(told) > _LONGEST_MESSAGE or "\n" in told:
            told = ""
        return shown(told or validation.message or f"failed expression: {validation.expression}")

    def _annotate(self, use: _Use, annotation: Condition, values: Mapping[str, Any]) -> None:
        try:
            value = self._cel.evaluate(annotation.expression, values)
            if value is not None and not isinstance(value, str):
                raise Undecided(f"valueExpression '{annotation.expression}' gives no string")
        except Undecided as why:
            self._failed(use, why)
            return
        if value and value.strip():
            self._log.info(
                "{policy} notes of {operation} {resource} {namespace}/{object}: {key}={value}",
                policy=use.named,
                operation=use.asked.operation,
                resource=use.asked.qualified,
                namespace=use.asked.namespace,
                object=use.asked.name,
                key=annotation.name,
                value=shown(value),
            )

    def _failed(self, use: _Use, why: Undecided, reason: str = "Invalid") -> None:
        """What is to be said of a request cannot be found out."""
        if use.policy.ignores_failures:
            self._log.warn("{policy} is passed by: {why}", policy=use.named, why=str(why))
            return
        remedy = f"; {_REMEDY}" if isinstance(why, Unsupported) else ""
        self._act(use, f"{why}{remedy}", reason)

    def _act(self, use: _Use, why: str, reason: str) -> None:
        actions = use.binding.actions
        if "Warn" in actions:
            use.asked.warn(f"Validation failed for {use.named}: {why}")
        if "Audit" in actions:
            self._log.info("{policy} finds: {why}", policy=use.named, why=why)
        if "Deny" in actions:
            raise use.refusal(why, reason)
