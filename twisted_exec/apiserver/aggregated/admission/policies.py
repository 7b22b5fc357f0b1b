"""
The host's admission policies: CEL expressions, put to use by bindings.

A failed evaluation counts as a failed validation unless ``failurePolicy`` is ``Ignore``. Parameters
and MutatingAdmissionPolicies are not supported, and count as failed evaluations. Source:
``k8s.io/apiserver/pkg/admission/plugin/policy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.admission.attributes import AdmissionAttributes
from twisted_exec.apiserver.aggregated.admission.cel import (
    Cel,
    MatchConditions,
    Undecided,
    Unsupported,
    as_boolean,
    values_of,
)
from twisted_exec.apiserver.aggregated.admission.matching import (
    MatchCriteria,
    Matcher,
    NamedExpression,
    named_expressions,
    policy_criteria,
)
from twisted_exec.apiserver.aggregated.admission.objects import FollowedKind
from twisted_exec.apiserver.aggregated.admission.review import printable

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}
_LONGEST_MESSAGE = 5 << 10
_REMEDY = (
    "exempt what this server serves by matchConstraints.excludeResourceRules, or set "
    "failurePolicy: Ignore"
)


@dataclass(frozen=True)
class Validation:
    """An entry of ``validations``."""

    expression: str
    message: str
    message_expression: str
    reason: str


@dataclass(frozen=True)
class Binding:
    """
    A binding of a policy to requests.

    :param actions: reactions to a failed validation: ``Deny``, ``Warn``, ``Audit``.
    """

    name: str
    criteria: MatchCriteria
    actions: tuple[str, ...]
    has_params: bool


@dataclass(frozen=True)
class BoundPolicy:
    """One policy with its bindings."""

    name: str
    criteria: MatchCriteria
    conditions: tuple[NamedExpression, ...]
    variables: tuple[NamedExpression, ...]
    validations: tuple[Validation, ...]
    annotations: tuple[NamedExpression, ...]
    ignores_failures: bool
    takes_params: bool
    bindings: tuple[Binding, ...]


def policies_of(policies: Iterable[Object], bindings: Iterable[Object]) -> list[BoundPolicy]:
    """Return all policies that have bindings."""
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
        name, policy_criteria(spec.get("matchResources")), actions, bool(spec.get("paramRef"))
    )


def _policy(name: str, spec: Mapping[str, Any], bindings: tuple[Binding, ...]) -> BoundPolicy:
    return BoundPolicy(
        name,
        policy_criteria(spec.get("matchConstraints")),
        named_expressions(spec.get("matchConditions")),
        named_expressions(spec.get("variables")),
        tuple(_validation(each) for each in spec.get("validations") or ()),
        tuple(
            NamedExpression(str(each.get("key")), str(each.get("valueExpression")))
            for each in spec.get("auditAnnotations") or ()
        ),
        spec.get("failurePolicy") == "Ignore",
        bool(spec.get("paramKind")),
        bindings,
    )


def _validation(entry: Mapping[str, Any]) -> Validation:
    return Validation(
        str(entry.get("expression")),
        str(entry.get("message") or "").strip(),
        str(entry.get("messageExpression") or ""),
        str(entry.get("reason") or "Invalid"),
    )


class _PolicyCache:
    def __init__(self, policies: FollowedKind, bindings: FollowedKind) -> None:
        self._followed = policies, bindings
        self._generation: tuple[int, ...] = ()
        self._policies: Sequence[BoundPolicy] = ()

    async def policies(self) -> Sequence[BoundPolicy]:
        policies, bindings = [await each.objects() for each in self._followed]
        generation = tuple(each.generation for each in self._followed)
        if generation != self._generation:
            self._policies = policies_of(policies, bindings)
            self._generation = generation
        return self._policies


class _Use:
    def __init__(
        self, noun: str, policy: BoundPolicy, attributes: AdmissionAttributes, binding: Binding
    ) -> None:
        self.policy, self.binding, self.attributes = policy, binding, attributes
        self.named = f"{noun} '{policy.name}' with binding '{binding.name}'"

    @property
    def user(self) -> str:
        return self.attributes.user.name

    def refusal(self, why: str, reason: str) -> APIError:
        attributes = self.attributes
        name, message = attributes.name or "Unknown", f"{self.named} denied request: {why}"
        return APIError(
            f'{attributes.qualified} "{name}" is forbidden: {message}',
            code=_CODES.get(reason, 422),
            reason=reason,
            details={
                "name": name,
                "group": attributes.group,
                "kind": attributes.plural,
                "causes": [{"message": message}],
            },
        )


class Policies:
    """Applies the host's policies."""

    _log = Logger()

    def __init__(
        self,
        validating: tuple[FollowedKind, FollowedKind],
        mutating: tuple[FollowedKind, FollowedKind],
        matcher: Matcher,
        cel: Cel,
    ) -> None:
        self._validating, self._mutating = _PolicyCache(*validating), _PolicyCache(*mutating)
        self._matcher, self._cel, self._conditions = matcher, cel, MatchConditions(cel)

    async def check_mutating(self, attributes: AdmissionAttributes) -> None:
        """
        Treat a policy that would change the request as failed: changes are not supported.

        :raises APIError: the request is refused, or no decision is possible.
        """
        for policy in await self._mutating.policies():
            for use in await self._uses("MutatingAdmissionPolicy", policy, attributes):
                try:
                    if not await self._applies(use):
                        continue
                    why = Undecided("this server carries out no MutatingAdmissionPolicy")
                except Undecided as problem:
                    why = problem
                self._failed(use, Unsupported(str(why)), "Forbidden")

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """
        Apply the validating policies to a request.

        :raises APIError: a policy denies the request, or no decision is possible.
        """
        for policy in await self._validating.policies():
            for use in await self._uses("ValidatingAdmissionPolicy", policy, attributes):
                await self._evaluate(use)

    async def _uses(
        self, noun: str, policy: BoundPolicy, attributes: AdmissionAttributes
    ) -> Sequence[_Use]:
        uses = []
        for binding in policy.bindings:
            use = _Use(noun, policy, attributes, binding)
            try:
                about = await self._matcher.matches(policy.criteria, attributes)
                if about and await self._matcher.matches(binding.criteria, attributes):
                    uses.append(use)
            except APIError as error:
                if not policy.ignores_failures:
                    raise use.refusal(f"failed to configure: {error.message}", "Invalid") from None
        return uses

    async def _evaluate(self, use: _Use) -> None:
        try:
            if not await self._applies(use):
                return
        except Undecided as why:
            self._failed(use, why)
            return
        values = await self._values(use)
        values["variables"] = await self._variables(use, values)
        for validation in use.policy.validations:
            await self._validate(use, validation, values)
        for annotation in use.policy.annotations:
            await self._annotate(use, annotation, values)

    async def _applies(self, use: _Use) -> bool:
        if use.policy.takes_params and use.binding.has_params:
            raise Unsupported("its paramKind is not read by this server")
        values = await self._values(use)
        return await self._conditions.hold(use.policy.conditions, use.attributes, values)

    async def _values(self, use: _Use) -> dict[str, Any]:
        attributes = use.attributes
        namespace: Object | None = None
        if attributes.namespace:
            namespace = await self._matcher.namespaces.get(attributes.namespace)
        return {**values_of(attributes), "namespaceObject": namespace}

    async def _variables(self, use: _Use, values: Mapping[str, Any]) -> Object:
        """Variables may use earlier ones; a failing one is missing where it is used."""
        values_by_name: Object = {}
        for variable in use.policy.variables:
            try:
                value = await self._cel.evaluate(
                    variable.expression, {**values, "variables": values_by_name}, use.user
                )
            except Undecided as why:
                self._log.debug("{name}: {why}", name=use.policy.name, why=str(why))
            else:
                values_by_name[variable.name] = value
        return values_by_name

    async def _validate(self, use: _Use, validation: Validation, values: Mapping[str, Any]) -> None:
        try:
            if not as_boolean(await self._cel.evaluate(validation.expression, values, use.user)):
                self._act(use, await self._message(use, validation, values), validation.reason)
        except Undecided as why:
            self._failed(use, why)

    async def _message(self, use: _Use, validation: Validation, values: Mapping[str, Any]) -> str:
        message = ""
        if validation.message_expression:
            try:
                expression = validation.message_expression
                message = await self._cel.evaluate(expression, values, use.user)
            except Undecided as why:
                self._log.debug("a messageExpression: {why}", why=str(why))
        message = message.strip() if isinstance(message, str) else ""
        if len(message) > _LONGEST_MESSAGE or "\n" in message:
            message = ""
        return printable(
            message or validation.message or f"failed expression: {validation.expression}"
        )

    async def _annotate(
        self, use: _Use, annotation: NamedExpression, values: Mapping[str, Any]
    ) -> None:
        try:
            value = await self._cel.evaluate(annotation.expression, values, use.user)
            if value is not None and not isinstance(value, str):
                raise Undecided(f"valueExpression '{annotation.expression}' gives no string")
        except Undecided as why:
            self._failed(use, why)
            return
        if value and value.strip():
            self._log.info(
                "{policy} annotates {operation} {resource} {namespace}/{object}: {key}={value}",
                policy=use.named,
                operation=use.attributes.operation,
                resource=use.attributes.qualified,
                namespace=use.attributes.namespace,
                object=use.attributes.name,
                key=annotation.name,
                value=printable(value),
            )

    def _failed(self, use: _Use, why: Undecided, reason: str = "Invalid") -> None:
        if use.policy.ignores_failures:
            self._log.warn(
                "an expression of {policy} is ignored: {why}", policy=use.named, why=str(why)
            )
            return
        remedy = f"; {_REMEDY}" if isinstance(why, Unsupported) else ""
        self._act(use, f"{why}{remedy}", reason)

    def _act(self, use: _Use, why: str, reason: str) -> None:
        actions = use.binding.actions
        if "Warn" in actions:
            use.attributes.warn(f"Validation failed for {use.named}: {why}")
        if "Audit" in actions:
            self._log.info("{policy} reports: {why}", policy=use.named, why=why)
        if "Deny" in actions:
            raise use.refusal(why, reason)
