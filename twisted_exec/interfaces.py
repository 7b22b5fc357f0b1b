"""
Interfaces that applications implement or hold, and the values that their methods take and return.

``docs/howto/embed.rst`` says what each is for, and where it is shown.
"""

from __future__ import annotations

from twisted_exec.api.status import ServiceUnavailable, Unauthorized
from twisted_exec.api.users import with_authenticated
from twisted_exec.apiserver.interfaces import IAPIServer
from twisted_exec.auth.interfaces import (
    Decision,
    IAuthenticator,
    IAuthorizer,
    IProxyAuthenticator,
    IRulesAuthorizer,
    IVisibility,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.rbac import IRuleSource
from twisted_exec.auth.rules import Attributes
from twisted_exec.console.interfaces import ILineTransport, IRecoveringTransport
from twisted_exec.console.line import LineEnded
from twisted_exec.iri.interfaces import (
    IConsoleAlerts,
    IConsoleRecordings,
    IMachineLogs,
    IMachineRuntime,
)
from twisted_exec.journal.interfaces import IWritableJournal
from twisted_exec.kube.interfaces import (
    IKubeClient,
    IObjectClient,
    IRecordedProtocol,
    IResumableProtocol,
)
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.program.config_file import ConfigError, Reader
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.runtimes.drivers import IDriverMaker
from twisted_exec.runtimes.interfaces import (
    CannotStart,
    IAdoptsMachines,
    IHardware,
    IHotPlug,
    IJournalWriter,
    IKeepsState,
    IMachineDriver,
    IProbed,
    IReleasable,
    IReopenable,
    IRestartPolicy,
    IRun,
    IRunsHostProcesses,
    ISharedLineTransport,
    IShutdown,
    MachineFacts,
)
from twisted_exec.runtimes.lines.shared_line import LineTiming, Power, SharedLine
from twisted_exec.spacemanager.interfaces import (
    Access,
    IHostLocal,
    IRotatesCredentials,
    ISpaceProvider,
    Physical,
    ProviderCondition,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spaces.interfaces import (
    ISpaceClient,
    ISpaceConnection,
    ISpaceListener,
    SpaceName,
)
from twisted_exec.storage.interfaces import IStorage, IWatch
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    CONSOLE_IN_USE,
    IDLE,
    INPUT_DENIED,
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SESSION_DELETED,
    SHUTTING_DOWN,
    TIME_OVER,
    TOO_MANY_VIEWERS,
    Ending,
    IBreakable,
    IConsole,
    TerminalSize,
)
from twisted_exec.wire.marks import OpenRecording
from twisted_exec.wire.upgrade import HeaderSet

__all__ = [
    "COMPLETED",
    "CONSOLE_IN_USE",
    "IDLE",
    "INPUT_DENIED",
    "INTERNAL",
    "LINE_LOST",
    "MACHINE_DELETED",
    "POOL_DELETED",
    "POWERED_OFF",
    "REVOKED",
    "SESSION_DELETED",
    "SHUTTING_DOWN",
    "TIME_OVER",
    "TOO_MANY_VIEWERS",
    "Access",
    "Attributes",
    "CannotStart",
    "ConfigError",
    "Decision",
    "Ending",
    "HeaderSet",
    "IAPIServer",
    "IAdoptsMachines",
    "IAuditSink",
    "IAuthenticator",
    "IAuthorizer",
    "IBreakable",
    "IConsole",
    "IConsoleAlerts",
    "IConsoleRecordings",
    "IDriverMaker",
    "IHardware",
    "IHostLocal",
    "IHotPlug",
    "IJournalWriter",
    "IKeepsState",
    "IKubeClient",
    "ILineTransport",
    "IMachineDriver",
    "IMachineLogs",
    "IMachineRuntime",
    "IObjectClient",
    "IPoollet",
    "IProbed",
    "IProxyAuthenticator",
    "IRecordedProtocol",
    "IRecoveringTransport",
    "IReleasable",
    "IReopenable",
    "IRestartPolicy",
    "IResumableProtocol",
    "IRotatesCredentials",
    "IRuleSource",
    "IRulesAuthorizer",
    "IRun",
    "IRunsHostProcesses",
    "ISharedLineTransport",
    "IShutdown",
    "ISpaceClient",
    "ISpaceConnection",
    "ISpaceListener",
    "ISpaceProvider",
    "IStorage",
    "IVisibility",
    "IWatch",
    "IWritableJournal",
    "LineEnded",
    "LineTiming",
    "MachineFacts",
    "OpenRecording",
    "Physical",
    "Power",
    "PresentedCredentials",
    "ProviderCondition",
    "ProviderContext",
    "ProviderSpec",
    "Reader",
    "ServiceUnavailable",
    "SharedLine",
    "SpaceInfo",
    "SpaceName",
    "SpaceRequest",
    "TerminalSize",
    "Unauthorized",
    "User",
    "with_authenticated",
]
