"""
Settings of each API server, whatever its control plane: dialects, scheduler, audit policy.

:mod:`twisted_exec.apiserver.settings` adds those of the listening server: its address, certificates and
poollets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from twisted_exec.api.dialects import DEFAULT, NAMES, Dialect
from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY, AuditPolicy, load
from twisted_exec.apiserver.controllers.deleted_consoles import DEFAULT_DAYS
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.options.declaration import OPTION, ProgramOption
from twisted_exec.program.options.shared import ALLOWED_ORIGIN, CONSOLE_VERBS
from twisted_exec.program.options.values import days
from twisted_exec.program.session_limits import SessionLimits


def _audit_policy(path: str) -> AuditPolicy:
    try:
        return load(path)
    except ConfigError as problem:
        raise ValueError(str(problem)) from None


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """
    Settings of each API server, whatever its control plane.

    :param dialects: Pods of the first keep the machines' names.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow.
    :param audit_policy: selects the requests that are recorded besides sessions; ``None`` for none.
    """

    dialects: Sequence[Dialect] = field(
        default=(DEFAULT,),
        metadata={
            OPTION: ProgramOption(
                "dialect",
                f"Dialect of the machines: {NAMES}; may be repeated, and then only Pods of the first "
                f"have the names of their machines.  [default: {DEFAULT}]",
                several=True,
            )
        },
    )
    allowed_origins: Collection[bytes] = field(default=(), metadata={OPTION: ALLOWED_ORIGIN})
    scheduling: bool = field(
        default=True,
        metadata={
            OPTION: ProgramOption(
                "scheduler",
                "Assign machines without a pool to one.  The default.",
                reverse="Leave scheduling to another program, such as ironcore's own.",
            )
        },
    )
    deleted_console_days: int = field(
        default=DEFAULT_DAYS,
        metadata={
            OPTION: ProgramOption(
                "deleted-console-days",
                "How long the console of a deleted machine is listed; 0 to list none.",
                days,
                group="Storage",
            )
        },
    )
    strict_verbs: bool = field(default=False, metadata={OPTION: CONSOLE_VERBS})
    sessions: SessionLimits | None = None
    audit_policy: AuditPolicy | None = field(
        default=None,
        metadata={
            OPTION: ProgramOption(
                "audit-policy-file",
                "Requests that are recorded: a Policy of audit.k8s.io/v1; by default all changes.",
                _audit_policy,
                group="Audit log",
                convert=lambda policy: policy or DEFAULT_POLICY,
            )
        },
    )
