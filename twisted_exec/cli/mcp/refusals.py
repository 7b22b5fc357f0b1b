"""
Refusals in words for agents: their remedies are tools, where those for people are commands.

The kinds of a refusal decide, which its causes name; only the commands of other refusals, and of endings, which have no
causes, are found in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from twisted_exec.api.kinds.consolepolicies import (
    APPROVAL_REQUIRED,
    NOT_ALLOWED,
    POLICY_REQUIRED,
    REASON_REQUIRED,
)
from twisted_exec.api.missing_right import message_without_remedy
from twisted_exec.api.status import APIError, NotFound, Unauthorized
from twisted_exec.cli.advice import REASON_COMMAND, Advice
from twisted_exec.cli.explanations import ask_for_role, explain, not_allowed
from twisted_exec.cli.mcp.table import Tool
from twisted_exec.cli.refusal_texts import lacking_right
from twisted_exec.kube.kubeconfig.client_config import ClientConfig

MAY_ONLY_OBSERVE = (
    "you may only observe this console: call leave_console, and request_access with right drive, which asks a person; "
    "if an approval does not help, a person must give you the right to drive"
)
"""What the session of an agent says that may not type: without a role, or with an approval to observe alone."""

_REQUEST = re.compile(r"kubectl console (?:--\S+ )?--request --reason \S+ -n \S+ [^\s,;]+")
_OPEN_FOR_SCREEN = re.compile(r"open it with kubectl console \S+ -n \S+ --read-only")
"""Remedies of API servers."""


class ToolsAdvice(Advice):
    """The tools of an agent."""

    read_only = "get_screen and read_log"

    def refused(self, message: str) -> str:
        """Return a refusal, or the end of a session, with tools in place of the options of ``kubectl console``."""
        message = _REQUEST.sub("request_access", message)
        message = REASON_COMMAND.sub("the parameter reason", message)
        message = _OPEN_FOR_SCREEN.sub("send opens it, and read_log needs none", message)
        return message.replace("open it with --read-only", f"{self.read_only} show it")


TOOLS_ADVICE = ToolsAdvice()

_VERBS = {
    "list_machines": "list the machines of",
    "get_screen": "read the screen of",
    "read_log": "read the log of",
    "wait_for": "read the log of",
    "who_is_watching": "see who uses",
    "request_access": "request access to",
    "power": "switch",
    "start_recording": "record",
    "end_recording": "record",
}
_OF_POLICIES = (APPROVAL_REQUIRED, REASON_REQUIRED, POLICY_REQUIRED, NOT_ALLOWED)


def refused(
    refusal: APIError, tool: Tool, namespace: str, machine: str, config: ClientConfig
) -> str:
    """
    Return a line about a refused call.

    :param machine: empty for a call about all machines.
    """
    causes = [each for each in refusal.causes if each.get("reason") in _OF_POLICIES]
    if causes:
        return _by_policies(refusal, causes, tool, machine)
    right = lacking_right(refusal)
    if right is not None and right.verb == "impersonate":
        line = message_without_remedy(refusal)
        return f"the program that serves these tools may not act as you, and its operator decides that: {line}"
    # Without the hint of commands, which costs a list of all machines: agents may call again and again.
    line = explain(refusal, namespace, config, TOOLS_ADVICE)
    line = not_allowed(refusal, line, machine or namespace, _VERBS.get(tool.name, "type at"))
    if refusal.code == Unauthorized.code:
        line += "; a person renews an agent's identity with twisted-exec mcp login NAME"
    if refusal.code == NotFound.code and machine and refusal.details.get("name") == machine:
        line += "; list_machines lists those that exist"
    return line


def _by_policies(
    refusal: APIError, causes: Sequence[Mapping[str, Any]], tool: Tool, machine: str
) -> str:
    texts = dict.fromkeys(str(each.get("message") or "") for each in causes)
    line = f'machine "{machine}": {"; ".join(filter(None, texts))}'
    reasons = {each["reason"] for each in causes}
    if (right := lacking_right(refusal)) is not None:
        return f"{line}, and you may not ask for it: {ask_for_role(right)}"
    if not reasons.isdisjoint((NOT_ALLOWED, POLICY_REQUIRED)):
        return line  # neither a reason nor an approval suffices
    if APPROVAL_REQUIRED in reasons:
        wanted = "drive" if tool.acts else "observe"
        line += f"; request_access asks a person, with right {wanted} and a reason"
        if request := next((str(each["request"]) for each in causes if each.get("request")), ""):
            line += f'; with request "{request}" it says what became of that one'
        return f"{line}; when it is approved, call this again"
    return f"{line}; the parameter reason gives it"
