"""
The check of a request for a screen, the same at each hop.
"""

from __future__ import annotations

from twisted_exec.api.screens import ScreenOptions, parse
from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.upgrade_server import is_upgrade


def screen_options(request: Request, machine: str) -> ScreenOptions:
    """
    Return the options of a request.

    :param machine: its name, for messages.
    :raises Invalid: an option is not valid.
    :raises BadRequest: the request is one for an upgrade.
    """
    options = parse(request.args, machine)
    if is_upgrade(request):
        raise BadRequest("a screen is read with a plain GET")
    return options
