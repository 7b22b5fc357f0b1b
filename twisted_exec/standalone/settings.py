"""
Settings of ``exec-standalone``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_exec.api.dialects import DEFAULT, NAMES, Dialect, by_name
from twisted_exec.apiserver.settings import PODS_VIEW, WEB
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.program.options.declaration import OPTION, ProgramOption
from twisted_exec.program.options.shared import (
    ALLOWED_ORIGIN,
    CONSOLE_VERBS,
    DRAIN_SECONDS,
    SPACE_PORT_RANGE,
)
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.recording.stores.option import RECORDING_STORE, MakeStore
from twisted_exec.runtimes.config import ClassConfig
from twisted_exec.runtimes.last_lines import LAST_LINE_SECONDS
from twisted_exec.standalone.machines import load_classes
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.storage.option import FORMS, storage_option
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits
from twisted_exec.web.oidc import WebClient


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ValueError(f"{text!r} is no port from 0 to 65535")
    return int(text)


@dataclass(frozen=True)
class Settings:
    """
    Settings of the standalone program.

    :param state_directory: directory for all state; see :mod:`.state`.
    :param port: loopback port of the API server; 0 for any free port.
    :param drain_seconds: limit for the last messages to open sessions when the program stops.
    :param token_file: file with bearer tokens of further users; empty for none.
    :param pods_view: show each machine as a Pod as well.
    :param dialect: dialect of the API; a state directory cannot change it.
    :param allowed_origins: further sites whose pages may send requests to the API server.
    :param issuers: issuers of OIDC ID tokens for further users.
    :param storage: makes the API server's store, given the reactor; a file of the state
        directory when ``None``.
    :param demo: create demo machines; otherwise create none, and of the program's own classes only
        that for shells.
    :param classes: machine classes besides the program's own.
    :param client_ca: path of a further client CA; empty for none.
    :param sessions: limits of concurrent sessions of each part; ``None`` for as many as file
        descriptors allow.
    :param limits: limits of what objects use in the file of the state directory.
    :param spaces: run a Space Manager, and create a provider for local spaces.
    :param keep_machines: virtual machines and shells continue when the program stops.
    :param space_ports: ports for the API servers of local spaces; ``None`` for the default range.
    :param strict_verbs: ``create`` on ``machines/exec`` includes no right at a console.
    :param last_line_seconds: see :class:`twisted_exec.runtimes.settings.Settings`.
    :param recording_store: creates the store of closed recordings, if there is one.
    :param has_parent: stop with the parent process.
    :param verbose: write the log on a terminal.
    :param web: serve the web console under ``/console/``.
    :param web_client: the web console as a client of the issuers.
    """

    state_directory: str = field(
        metadata={
            OPTION: ProgramOption(
                "state-dir",
                "Directory for all state; one program at a time.",
                default="exec-state",
                group="Storage",
                is_path=True,
            )
        }
    )
    port: int = field(
        default=6443,
        metadata={
            OPTION: ProgramOption(
                "port",
                "Port of the API server on 127.0.0.1; 0: any free port, another at each start.",
                _port,
                group="API server",
                listens=True,
            )
        },
    )
    drain_seconds: float = field(default=1.5, metadata={OPTION: DRAIN_SECONDS})
    token_file: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "token-auth-file",
                "CSV file with further users: token,user,uid,groups.",
                group="Users",
                is_path=True,
            )
        },
    )
    pods_view: bool = field(default=True, metadata={OPTION: PODS_VIEW})
    dialect: Dialect = field(
        default=DEFAULT,
        metadata={
            OPTION: ProgramOption(
                "dialect",
                f"Dialect of the API: {NAMES}.  Each requires its own --state-dir.",
                by_name,
                group="API server",
            )
        },
    )
    allowed_origins: Collection[bytes] = field(default=(), metadata={OPTION: ALLOWED_ORIGIN})
    issuers: Issuers = Issuers()
    storage: Callable[[Any], IStorage] | None = field(
        default=None,
        metadata={
            OPTION: ProgramOption(
                "storage",
                f"Storage of objects: {FORMS}; default: a file in the state directory.",
                storage_option,
                group="Storage",
            )
        },
    )
    demo: bool = field(
        default=True,
        metadata={
            OPTION: ProgramOption("without-demo", "Create no demo machines, and offer shells only.")
        },
    )
    classes: Sequence[ClassConfig] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "classes",
                "YAML file with further machine classes, as of exec-runtime.  A class of the API is "
                "created for each.",
                default=None,
                is_path=True,
                convert=load_classes,
            )
        },
    )
    spaces: bool = field(
        default=True,
        metadata={
            OPTION: ProgramOption("without-spaces", "Do not run the Space Manager.", group="Spaces")
        },
    )
    client_ca: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "client-ca-file",
                "CA of client certificates of further users.",
                group="Users",
                is_path=True,
            )
        },
    )
    sessions: SessionLimits | None = None
    limits: QuotaLimits = field(default=NO_LIMITS, metadata={OPTION: QuotaLimits})
    space_ports: range | None = field(default=None, metadata={OPTION: SPACE_PORT_RANGE})
    keep_machines: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "no-keep-machines",
                "End virtual machines and shells when this program stops.",
                default=True,
            )
        },
    )
    strict_verbs: bool = field(
        default=False,
        metadata={OPTION: replace(CONSOLE_VERBS, group="API server")},
    )
    last_line_seconds: int = field(default=0, metadata={OPTION: LAST_LINE_SECONDS})
    recording_store: MakeStore | None = field(
        default=None, metadata={OPTION: replace(RECORDING_STORE, group="Storage")}
    )
    has_parent: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "with-parent", "Stop when standard input ends; for use by a parent process."
            )
        },
    )
    verbose: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "verbose",
                "Show the log on a terminal, instead of a summary with the log in a file.",
            )
        },
    )
    web: bool = field(default=True, metadata={OPTION: WEB})
    web_client: WebClient | None = None
