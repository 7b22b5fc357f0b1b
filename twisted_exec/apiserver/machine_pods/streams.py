"""
Streams of Pods that are machines, and refusals of everything else.

``attach`` and ``exec`` open the machine's console with the locator of ``machines/exec``: same
permission, same record.  They differ in the accepted options; options of kubectl that mean nothing
to a serial line are refused with a message.  kubectl has no options for read-only or forced
sessions, so these are options of the only command.  Every change of a Pod is refused with the
alternative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import shown
from twisted_exec.api.kinds import CONSOLE, PODS
from twisted_exec.api.status import BadRequest, MethodNotAllowed, NotImplementedByBackend
from twisted_exec.apiserver.consoles.connect import MachineLocator
from twisted_exec.apiserver.machine_pods.conversion import PodNames
from twisted_exec.apiserver.machine_pods.storage import READ_ONLY
from twisted_exec.apiserver.serving.filters import APIRequest
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.streaming.http.routes import Routes, split_path
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import IStreamLocator, Location
from twisted_exec.streaming.proxy import Proxy

_PODS = f"{root_of(PODS)}/namespaces/{{namespace}}/{PODS.resource.plural}"
_POD = f"{_PODS}/{{name}}"
_WORDS = {b"POST": "create", b"PUT": "replace", b"PATCH": "patch", b"DELETE": "delete"}


@implementer(IStreamLocator)
class ByPodName:
    """
    Locates by a Pod's name.

    :param machines: locators by dialect.
    """

    def __init__(self, names: PodNames, machines: Mapping[Dialect, MachineLocator]) -> None:
        self._names, self._machines = names, machines

    def locate(self, request: IRequest) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`."""
        assert isinstance(request, APIRequest)
        *_, namespace, _plural, pod, _subresource = split_path(request.path)
        dialect, name = self._names.machine(pod)
        return self._machines[dialect].find(request, namespace, name)


@implementer(IStreamLocator)
class PodLocator:
    """
    Locates the poollet for ``.../pods/NAME/attach`` and ``.../pods/NAME/exec``.

    :param machines: locates by the machine.
    """

    def __init__(self, machines: IStreamLocator) -> None:
        self._machines = machines

    def locate(self, request: IRequest) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`."""
        return Deferred.fromCoroutine(self._locate(request))

    async def _locate(self, request: IRequest) -> Location:
        # Authorize first: an unauthorized client must learn nothing else.
        location: Location = await self._machines.locate(request)
        query = Query(request.args)
        check_container(query)
        *_, pod, subresource = split_path(request.path)
        if subresource == "exec":
            request.args.update(_query_of(query.texts("command"), pod))
        _check_streams(query)
        return location


def check_container(query: Query) -> None:
    """
    :raises BadRequest: a container other than the console.
    """
    container = query.text("container")
    if container not in ("", CONSOLE):
        raise BadRequest(
            f"container {shown(container)} is not valid: the only one is {CONSOLE}, the machine's "
            "serial console"
        )


def _query_of(command: Sequence[str], name: str) -> dict[bytes, list[bytes]]:
    """
    Convert a command to query parameters.

    :raises BadRequest: not the console's command, or unknown options.
    """
    first, *options = [*command, ""][: len(command) or 1]
    if first != CONSOLE or len(options) > 1 or not set(options) <= _OPTIONS.keys():
        raise BadRequest(_no_commands(name))
    return {_OPTIONS[option]: [b"true"] for option in options}


_OPTIONS = {"--read-only": b"readOnly", "--force": b"force"}
"""Options of the command and their query parameters: see :mod:`~twisted_exec.wire.stream_options`."""


def _no_commands(name: str) -> str:
    return (
        f"a serial console runs no commands: open it with kubectl attach -it {name}, or with "
        f"kubectl exec -it {name} -- {CONSOLE}, and type them there"
    )


def _check_streams(query: Query) -> None:
    if not any(query.flag(name) for name in ("stdin", "stdout", "stderr")):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")


def add_pod_consoles(routes: Routes, proxy: Proxy) -> None:
    """
    ``pods/attach`` and ``pods/exec``, as GET and POST.

    :param proxy: with a :class:`PodLocator`.
    """

    async def handle(request: Request, values: Mapping[str, str]) -> None:
        await proxy.handle(request)

    for subresource in ("attach", "exec"):
        routes.add(["GET", "POST"], f"{_POD}/{subresource}", handle)


def add_refusals(routes: Routes, names: PodNames) -> None:
    """Add routes that refuse what a console lacks, and what a view does not allow."""
    read_only = partial(_read_only, names)
    routes.add(["GET", "POST"], f"{_POD}/portforward", _no_ports)
    routes.add(["POST", "DELETE"], _PODS, read_only)
    routes.add(["PUT", "PATCH", "DELETE"], _POD, read_only)
    routes.add(["PUT", "PATCH"], f"{_POD}/status", read_only)
    routes.add(["PUT", "PATCH"], f"{_POD}/ephemeralcontainers", _no_containers)


async def _no_ports(request: Request, values: Mapping[str, str]) -> None:
    raise NotImplementedByBackend(
        f'no port of pod "{values["name"]}" can be forwarded: it is a machine, of which only the '
        "serial console can be reached"
    )


async def _no_containers(request: Request, values: Mapping[str, str]) -> None:
    """Refuse ``kubectl debug``."""
    raise MethodNotAllowed(f'machine "{values["name"]}": {_no_commands(values["name"])}')


async def _read_only(names: PodNames, request: Request, values: Mapping[str, str]) -> None:
    request.setHeader(b"Allow", b"GET")
    dialect, name = names.machine(values.get("name", ""))
    which = f'{dialect.noun} "{name}"' if name else dialect.workload.plural
    remedy = f"{_WORDS[request.method]} {which} in API group {dialect.group} instead"
    raise MethodNotAllowed(f"{READ_ONLY}: {remedy}")
