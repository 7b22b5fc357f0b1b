"""
``twistd exec-standalone``: all programs on one host, with two demo machines.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.application.service import IService

from twisted_exec.api.dialects import DEFAULT, NAMES, by_name
from twisted_exec.apiserver.options import OIDC_PATHS as OIDC_PATHS
from twisted_exec.apiserver.options import OIDCOptions, issuers, web_client
from twisted_exec.apiserver.tap import PODS_FLAGS, WEB_FLAGS, wants_pods_view, wants_web
from twisted_exec.program.options import CONSOLE_VERBS, STRICT, port_range, seconds
from twisted_exec.program.start import make_service
from twisted_exec.recording.stores.option import RECORDING_STORE
from twisted_exec.runtimes.supervised import LAST_LINE_SECONDS
from twisted_exec.standalone.service import Settings, Standalone
from twisted_exec.standalone.standard_streams import FirstCommands, stop_with_parent
from twisted_exec.storage.option import FORMS, QUOTA_OPTIONS, limits_of, storage_option

PROGRAM = "exec-standalone"


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ValueError(f"{text!r} is no port from 0 to 65535")
    return int(text)


class Options(OIDCOptions):
    """Command line of the standalone program."""

    program = PROGRAM
    paths = ("state-dir", "token-auth-file", "client-ca-file", *OIDC_PATHS)
    # Two of the API server, two of the poollet, one of the runtime and one of the machine.
    descriptors_per_session = 6
    group = "Start and stop"
    groups = {
        "API server": [
            "port",
            "dialect",
            "pods-view",
            "no-pods-view",
            "web",
            "no-web",
            "console-verbs",
        ],
        "Storage": [
            "state-dir",
            "storage",
            *(each[0] for each in QUOTA_OPTIONS),
            "recording-store",
        ],
        "Users": ["token-auth-file", "client-ca-file"],
        "Spaces": ["space-port-range", "without-spaces"],
    }
    synopsis = "[options]"
    longdesc = (
        "API server, poollet and runtime on loopback, with certificates made on the first start "
        "and two machines: demo-shell, a shell of your own, and demo-vm, which boots U-Boot."
    )

    optParameters = [
        ["state-dir", None, "exec-state", "Directory for all state; one program at a time."],
        ["port", None, 6443, "Port of the API server on 127.0.0.1; 0: any free port.", _port],
        [
            "space-port-range",
            None,
            None,
            "Ports of 127.0.0.1 for the API servers of local Spaces: FIRST-LAST.",
            port_range,
        ],
        [
            "storage",
            None,
            None,
            f"Storage of objects: {FORMS}; default: a file in the state directory.",
            storage_option,
        ],
        *QUOTA_OPTIONS,
        CONSOLE_VERBS,
        ["token-auth-file", None, None, "CSV file with further users: token,user,uid,groups."],
        ["client-ca-file", None, None, "CA of client certificates of further users."],
        [
            "dialect",
            None,
            DEFAULT,
            f"Dialect of the API: {NAMES}.  Each requires its own --state-dir.",
            by_name,
        ],
        ["drain-seconds", None, 5.0, "Seconds that sessions may take to end at shutdown.", seconds],
        LAST_LINE_SECONDS,
        RECORDING_STORE,
    ]
    optFlags = [
        *PODS_FLAGS,
        *WEB_FLAGS,
        ["without-demo", None, "Create no demo machines, and offer shells only."],
        ["no-keep-machines", None, "End virtual machines and shells when this program stops."],
        ["without-spaces", None, "Do not run the Space Manager."],
        ["with-parent", None, "Stop when standard input ends; for use by a parent process."],
    ]

    def postOptions(self) -> None:
        """
        Check the options.

        :raises UsageError: an option is invalid.
        """
        super().postOptions()
        wants_pods_view(self)
        wants_web(self)


def makeService(options: Options) -> IService:
    """Return the service, without opening anything."""
    return make_service(
        PROGRAM,
        lambda reactor: _program(options, reactor),
        options=options,
        limits=options.session_limits,
    )


def _program(options: Options, reactor: Any) -> Standalone:
    if options["with-parent"]:
        reactor.callWhenRunning(stop_with_parent, reactor)
    standalone = Standalone(_settings(options), reactor)
    first = FirstCommands(reactor)

    def show(_: None) -> None:
        if not standalone.is_successor:  # whose user has typed them long ago
            first.show(standalone.first_commands, lambda: bool(standalone.running))

    standalone.when_ready().addCallbacks(
        show,
        lambda failure: None,  # reported by make_service
    )
    return standalone


def _settings(options: Options) -> Settings:
    limits = limits_of(options)
    storage = options["storage"]
    return Settings(
        options["state-dir"],
        options["port"],
        options["drain-seconds"],
        options["token-auth-file"] or "",
        wants_pods_view(options),
        options["dialect"],
        options["allowed-origin"],
        issuers(options),
        partial(storage, limits=limits) if storage else None,
        demo=not options["without-demo"],
        keep_machines=not options["no-keep-machines"],
        client_ca=options["client-ca-file"] or "",
        spaces=not options["without-spaces"],
        sessions=options.session_limits(),
        limits=limits,
        space_ports=options["space-port-range"],
        strict_verbs=options["console-verbs"] == STRICT,
        last_line_seconds=options["last-line-seconds"],
        recording_store=options["recording-store"],
        has_parent=bool(options["with-parent"]),
        web=wants_web(options),
        web_client=web_client(options),
    )
