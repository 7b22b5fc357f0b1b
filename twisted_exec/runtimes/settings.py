"""
Settings of ``exec-runtime``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from twisted_exec.iri.revisions import IRONCORE
from twisted_exec.iri.target import MutualTLS
from twisted_exec.journal.retention import DEFAULT_LIMITS, DEFAULT_RETENTION, Retention, StoreLimits
from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required
from twisted_exec.program.options.values import whole_seconds
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.config import ClassConfig, load
from twisted_exec.runtimes.last_lines import LAST_LINE_SECONDS
from twisted_exec.runtimes.recordings.settings import NO_RECORDINGS, RecordingSettings
from twisted_exec.runtimes.serving.options import (
    ALLOW_UID,
    IRI_LISTEN,
    IRI_REVISION,
    SERVING_DRAIN_SECONDS,
    Listening,
)
from twisted_exec.runtimes.serving.server import REJOIN_SECONDS, RESUME_SECONDS
from twisted_exec.shipping.config import ShippingConfig
from twisted_exec.shipping.config import load as load_shipping


@dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """
    Settings of the machines of a runtime.

    :param keep_machines: let machines outlive the runtime if their driver supports it.
    :param retention: limits of the output of classes without limits of their own.
    :param last_line_seconds: least time between updates of a console's last line, which all users
        see who may read its machine; 0 to show none.
    """

    keep_machines: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "keep-machines",
                "Let machines outlive this program, if their driver supports it.",
            )
        },
    )
    retention: Retention = DEFAULT_RETENTION
    journal_limits: StoreLimits = DEFAULT_LIMITS
    last_line_seconds: int = field(default=0, metadata={OPTION: LAST_LINE_SECONDS})
    recording: RecordingSettings = field(
        default=NO_RECORDINGS, metadata={OPTION: RecordingSettings}
    )


@dataclass(frozen=True)
class Settings(MachineSettings):
    """
    Settings of a runtime.

    :param streaming: where to serve consoles; an empty address means a UNIX socket in a private
        directory.
    :param iri_tls: TLS of the runtime interface at a TCP target.
    :param iri_revision: the revision of ``machine.v1alpha1``, see
        :mod:`twisted_exec.iri.revisions`; spheric's service is always served, too.
    :param allowed_uids: users besides root and the runtime's own that may use the UNIX sockets.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow,
        up to 10000.
    :param shipping: where to send the lines of all consoles; ``None`` for nowhere.
    :param resume_seconds: how long a session waits for its user after the loss of a connection, and
        for its machine to start again; 0 disables both.
    :param rejoin_seconds: how long the stream of a stock client waits when a hop before the runtime
        is lost; 0 disables that.
    """

    classes: Sequence[ClassConfig] = field(
        metadata={
            OPTION: ProgramOption(
                "classes",
                "YAML file with the machine classes of this host.",
                is_path=True,
                required=Required(),
                convert=load,
            )
        }
    )
    state_directory: str = field(
        metadata={
            OPTION: ProgramOption(
                "state-dir",
                "Private directory for state across restarts.",
                default="exec-runtime-state",
                is_path=True,
            )
        }
    )
    iri_target: str = field(metadata={OPTION: IRI_LISTEN})
    streaming: Listening = Listening("")
    iri_tls: MutualTLS | None = None
    iri_revision: str = field(default=IRONCORE.name, metadata={OPTION: IRI_REVISION})
    allowed_uids: Sequence[int] = field(default=(), metadata={OPTION: ALLOW_UID})
    drain_seconds: float = field(default=1.5, metadata={OPTION: SERVING_DRAIN_SECONDS})
    sessions: SessionLimits | None = None
    shipping: ShippingConfig | None = field(
        default=None,
        metadata={
            OPTION: ProgramOption(
                "shipping",
                "YAML file: where to send the lines of all consoles.",
                is_path=True,
                convert=lambda path: load_shipping(path) if path else None,
            )
        },
    )
    resume_seconds: int = field(
        default=RESUME_SECONDS,
        metadata={
            OPTION: ProgramOption(
                "resume-seconds",
                "Seconds for which a session waits for its user after the loss of a connection, or for its machine to start again; 0 for none.",
                whole_seconds,
                group="Sessions",
            )
        },
    )
    rejoin_seconds: int = field(
        default=REJOIN_SECONDS,
        metadata={
            OPTION: ProgramOption(
                "rejoin-seconds",
                "Seconds for which a stream waits when a previous hop is lost; 0 for none.",
                whole_seconds,
                group="Sessions",
            )
        },
    )
