"""
The condition ``ConsoleHealthy`` of a machine: a match makes it ``False`` until the next boot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.iri.protos import console_pb2
from twisted_exec.journal.interfaces import Boot, IFollowedJournal
from twisted_exec.runtimes.alerts.rules import AlertRule
from twisted_exec.runtimes.alerts.saved_state import UNKNOWN_BOOT, SavedState, Unhealthy


def unhealthy(
    pattern: console_pb2.AlertPattern, journal: IFollowedJournal, offset: int, text: bytes
) -> Unhealthy:
    """
    Return why a machine is unhealthy after a match.

    :param offset: of the line in the journal.
    :param text: the beginning of the line, for the message.
    """
    line = text.decode("utf-8", "replace").strip()
    message = f'at offset {offset} the machine printed "{line}"'
    boot = _newest_boot(journal, offset)
    return Unhealthy(pattern.id, pattern.condition, message, journal.epoch, boot)


def health_condition(
    saved_state: SavedState, journal: IFollowedJournal, uid: str, rule: AlertRule
) -> ConditionValue:
    """Return the condition of a machine whose alerts set it; forget why a recovered machine was unhealthy."""
    why = saved_state.unhealthy(uid)
    if why is not None and _check_recovery(saved_state, journal, uid, rule, why):
        saved_state.set_unhealthy(uid, None)
        why = None
    if why is None:
        return "True", "NoMatch", "no pattern has matched since the machine started"
    return "False", why.reason, why.message


def _check_recovery(
    saved_state: SavedState, journal: IFollowedJournal, uid: str, rule: AlertRule, why: Unhealthy
) -> bool:
    """Return whether a machine has recovered; complete the saved state if its boot was unknown."""
    if all(pattern.id != why.pattern_id for pattern in rule.patterns.values()):
        return True
    if why.epoch != journal.epoch:
        return True
    newest = _newest_boot(journal)
    if why.boot == UNKNOWN_BOOT:
        # Take the present boot: the condition must not end before the next one.
        saved_state.set_unhealthy(uid, replace(why, boot=newest))
        return False
    return newest > why.boot


def _newest_boot(journal: IFollowedJournal, offset: int | None = None) -> int:
    try:
        boots: Sequence[Boot] = journal.boots()
    except OSError:
        return UNKNOWN_BOOT
    return max(
        (each.number for each in boots if offset is None or each.offset <= offset), default=0
    )
