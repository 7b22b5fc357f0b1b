"""
Interfaces that applications implement or hold, and the values that their methods take and return.

interface                      implementation or purpose
=============================  ======================================================================
:class:`IAPIServer`            ``apiserver.service.APIServer``
:class:`IAdmission`            validates single writes to the API server
:class:`IMutatingAdmission`    changes or validates single writes
:class:`IOpeningAdmission`     validates the streams of the API server
:class:`IConsolePolicies`      conditions for console sessions: ``apiserver.consoles.policies``
:class:`IReservation`          an approval for one session: ``apiserver.consoles.policies``
:class:`IStorage`              ``storage.sqlite``, ``storage.etcd``, ``storage.memory``
:class:`IWatch`                a running watch of a store
:class:`IPoollet`              ``poollet.service.Poollet``
:class:`IMachineRuntime`       ``runtimes.service.MachineRuntime``, ``iri.client.IRIClient`` ...
:class:`IMachineLogs`          logs of consoles: a runtime may provide it, too
:class:`IConsoleAlerts`        patterns in console output: a runtime may provide it, too
:class:`IConsoleRecordings`    recordings of consoles: a runtime may provide it, too
:class:`IDriverMaker`          reads one machine class of the configuration: ``runtimes.drivers``
:class:`IMachineDriver`        runs the machines of one class: ``runtimes.pty``, ``runtimes.qemu`` ...
:class:`IHardware`             a driver whose machines have disks and network interfaces:
``runtimes.qemu``
:class:`IRestartPolicy`        a driver that may restart machines: ``runtimes.pty``
:class:`IAdoptsMachines`       a driver whose machines outlive the runtime: ``runtimes.pty`` ...
:class:`IRunsHostProcesses`    marks a driver whose machines are processes of the host: ``runtimes.pty``
:class:`IConsole`              a machine's console line
:class:`ILineTransport`        the transport of a line, as ``console.shared_console`` uses it
:class:`IConsoleRecorder`      records a console
:class:`IRecoveringTransport`  a transport that says why its line is lost for a while
:class:`ISharedLineTransport`  the transport of a line that is reopened after a loss
:class:`IBreakable`            a console line that can send BREAK
:class:`IRun`                  a machine that is powered on, and its line
:class:`IShutdown`             a run that can ask its machine to shut down
:class:`IHotPlug`              a run whose volumes can be changed while it is on
:class:`IJournalWriter`        a run that writes boots into the machine's journal itself
:class:`IReleasable`           a run that can be left to itself when the runtime stops
:class:`IReopenable`           a run of a line that can be closed, and opened again
:class:`IAttachment`           one user's end of a console
:class:`IMessaging`            an attachment that passes messages on to other users: ``console.viewer.Viewer``
:class:`IOperable`             an attachment with BREAK and roles: ``console.viewer.Viewer``
:class:`IResumableAttachment`  an attachment that can outlive its stream
:class:`ITermsAttachment`      an attachment that enforces terms about all sessions of a console
:class:`IAttachmentTransport`  the stream to that user: ``streaming.remotecommand``
:class:`IEchoTransport`        a stream that learns how fast the machine answers input
:class:`IMarkTransport`        the stream to a user who can resume the session
:class:`IRecordedProtocol`     a protocol at a console's endpoint that tells about recordings
:class:`IResumableProtocol`    a protocol at a console's endpoint that handles losses itself
:class:`IStreamLocator`        finds the next hop of a proxied stream
:class:`IStreamRecorder`       records a proxied stream, which then is decoded
:class:`ISessionReviewer`      decides again about open sessions, for ``streaming.sessions.guard``
:class:`IRoundReviewer`        the same, for rounds with many equal questions
:class:`IJournal`              the output of one console: ``journal.journal``
:class:`ICursor`               the position of one reader of a journal
:class:`IScreen`               a terminal emulator: ``screens.process``
:class:`IRenderer`             renders screens in processes: ``screens.pool``
:class:`ILineSink`             a destination of console lines: ``shipping.otlp``, ``shipping.syslog`` ...
:class:`ILineBatch`            lines for such a destination
:class:`IKubeClient`           ``kube.client.KubeClient``, ``testing.cluster``
:class:`IObjectClient`         its reads and writes of single objects: ``apiserver.serving.client``
:class:`ILeaves`               the leaf clusters of a node server: ``nodeserver.leaves``
:class:`ILeaf`                 one leaf cluster: ``nodeserver.leaves.leaf``
:class:`IRootPods`             the Pods that the root cluster bound to its Nodes:
``nodeserver.root_pods``
:class:`ISpaceProvider`        creates and lists control planes: ``spacemanager.providers``
:class:`IRotatesCredentials`   a provider that can rotate credentials
:class:`IHostLocal`            a provider whose physical spaces run on the manager's host
:class:`IProviders`            the providers of a space manager:
``spacemanager.registry``
:class:`IProviderView`         one provider and its last list:
``spacemanager.views``
:class:`ISpaces`               the Spaces of a manager: ``spacemanager.spaces.loop``
:class:`ISpaceClient`          API servers by the names of Spaces: ``spaces.client``
:class:`ISpaceConnection`      one such server, as long as its Space exists
:class:`ISpaceListener`        receives the Spaces that appear and disappear
:class:`ILeases`               one Lease: ``kube.leases``
:class:`ILeader`               work of the elected replica: ``kube.leases``
:class:`IAuthenticator`        finds the user of a request: ``auth.x509``, ``auth.tokens`` ...
:class:`IProxyAuthenticator`   the same, for users whom a proxy forwards: ``auth.x509``
:class:`IAuthorizer`           decides about a request: ``auth.rbac``, ``auth.delegated``
:class:`IRulesAuthorizer`      an authorizer that can list its rules: ``auth.rbac``
:class:`IVisibility`           the objects of a resource that a user may see
:class:`IRuleSource`           the objects that RBAC's rules come from
:class:`IAuditSink`            ``program.audit_file.JSONLinesAudit``
=============================  ======================================================================
=======
``docs/howto/embed.rst`` says what each is for, and where it is shown.
"""

from __future__ import annotations

from twisted_exec.api.status import Unauthorized
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
from twisted_exec.program.config_file import Reader
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.runtimes.drivers import IDriverMaker
from twisted_exec.runtimes.interfaces import (
    CannotStart,
    IAdoptsMachines,
    IHardware,
    IHotPlug,
    IJournalWriter,
    IMachineDriver,
    IReleasable,
    IReopenable,
    IRestartPolicy,
    IRun,
    IRunsHostProcesses,
    ISharedLineTransport,
    IShutdown,
    MachineFacts,
)
from twisted_exec.runtimes.lines.shared_line import SharedLine
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
from twisted_exec.wire.resume import OpenRecording
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
    "IKubeClient",
    "ILineTransport",
    "IMachineDriver",
    "IMachineLogs",
    "IMachineRuntime",
    "IObjectClient",
    "IPoollet",
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
    "MachineFacts",
    "OpenRecording",
    "Physical",
    "PresentedCredentials",
    "ProviderCondition",
    "ProviderContext",
    "ProviderSpec",
    "Reader",
    "SharedLine",
    "SpaceInfo",
    "SpaceName",
    "SpaceRequest",
    "TerminalSize",
    "Unauthorized",
    "User",
    "with_authenticated",
]
