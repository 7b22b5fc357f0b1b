"""
All doors of twisted-exec, for applications that embed it.

Import from here what you implement or hold: the interfaces, and the facts that pass
through them.  Nothing inside imports this module.  What implements each is in the
room that is named.

========================  ======================================================
door                      what is behind it
========================  ======================================================
:class:`IAPIServer`       ``apiserver.service.APIServer``
:class:`IAdmission`       rules on single writes to the API server
:class:`IMutatingAdmission`  the same, and changes what is written
:class:`IOpeningAdmission`   rules on the streams of the API server
:class:`IStorage`         ``storage.sqlite``, ``storage.etcd``, ``storage.memory``
:class:`IPoollet`         ``poollet.service.Poollet``
:class:`IMachineRuntime`  ``runtimes.service.MachineRuntime``, ``iri.client.IRIClient``
:class:`IMachineLogs`     what consoles printed; the same two provide it
:class:`IDriverMaker`     reads a class of the configuration: ``runtimes.drivers``
:class:`IMachineDriver`   a class of machines: ``runtimes.pty``, ``runtimes.qemu``
:class:`IHardware`        besides it: machines with disks and cards: ``runtimes.qemu``
:class:`IRestarting`      besides it: whether a machine is started again: ``runtimes.pty``
:class:`IKeeping`         besides it: machines that outlive the runtime: ``runtimes.qemu``
:class:`IConsole`         a machine's console line
:class:`ILineTransport`   what a session calls on the line: ``console.session``
:class:`IBreakable`       a console line that can send BREAK
:class:`IRun`             a machine under power, and its line
:class:`IShutdown`        besides it: a machine that can be asked to end itself
:class:`IHotPlug`         besides it: whose disks can be changed while it is on
:class:`IKept`            besides it: that can be left running
:class:`IAttachment`      one user's end of a console
:class:`IOperable`        the same with BREAK and roles: ``console.session.Viewer``
:class:`IAttachmentTransport`  the stream to that user: ``streaming.remotecommand``
:class:`IStreamLocator`   where a proxy's stream goes next
:class:`ISessionReviewer`  decides again about open sessions, for ``streaming.sessions.guard``
:class:`IKubeClient`      ``kube.client.KubeClient``, ``testing.cluster``
:class:`ILeaves`          the leaf clusters of a node server: ``nodeserver.leaves``
:class:`ILeaf`            one of them: ``nodeserver.leaf``
:class:`IRootPods`        the Pods of the root on their Nodes: ``nodeserver.root_pods``
:class:`ISpaceProvider`   makes control planes, and lists them: ``spacemanager.providers``
:class:`IRotates`         besides it: that can give new credentials
:class:`IKeptHere`        besides it: whose physical spaces are on the manager's host
:class:`IProviders`       the providers of a space manager: ``spacemanager.providers_kept``
:class:`IProviderView`    one of them, and what it told last: ``spacemanager.provider_view``
:class:`ISpaces`          the Spaces that a manager keeps
:class:`ISpaceClient`     API servers by the names of Spaces: ``spaces.client``
:class:`ISpaceConnection`  one of them, for as long as it is there
:class:`ISpaceListener`   who wants to know which there are
:class:`ILeases`          one Lease: ``kube.election.ClientLeases``, ``apiserver.leading``
:class:`ILeader`          acts while it leads: ``kube.leading.Leading``
:class:`IAuthenticator`   who asks: ``auth.x509``, ``auth.tokens`` ...
:class:`IAuthorizer`      may they: ``auth.rbac``, ``auth.delegated``
:class:`IRulesAuthorizer`  the same by rules that it can tell: ``auth.rbac``
:class:`IRuleSource`      where RBAC's rules come from
:class:`IAuditSink`       ``observe.audit.JSONLinesAudit``
========================  ======================================================
"""

from __future__ import annotations

from twisted_exec.apiserver.interfaces import (
    Change,
    IAdmission,
    IAPIServer,
    IMutatingAdmission,
    IOpeningAdmission,
    Opening,
)
from twisted_exec.auth.credentials import PresentedCredentials
from twisted_exec.auth.interfaces import (
    Attributes,
    Decision,
    IAuthenticator,
    IAuthorizer,
    IRulesAuthorizer,
    User,
)
from twisted_exec.auth.rbac.authorizer import IRuleSource
from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.kube.interfaces import IKubeClient, ILeader, ILeases
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, IRootPods, LeafNode, LeafPod
from twisted_exec.observe.interfaces import IAuditSink
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.runtimes.interfaces import (
    CannotStart,
    IDriverMaker,
    IHardware,
    IHotPlug,
    IKeeping,
    IKept,
    IMachineDriver,
    IRestarting,
    IRun,
    IShutdown,
    MachineFacts,
)
from twisted_exec.spacemanager.interfaces import (
    Access,
    Around,
    IKeptHere,
    IProviders,
    IProviderView,
    IRotates,
    ISpaceProvider,
    ISpaces,
    Look,
    Physical,
    ProviderSpec,
    SpaceInfo,
    Wanted,
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
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SESSION_DELETED,
    SHUTTING_DOWN,
    Break,
    Ending,
    IAttachment,
    IAttachmentTransport,
    IBreakable,
    IConsole,
    IOperable,
    ISessionReviewer,
    IStreamLocator,
    Location,
    Role,
    Subject,
    TerminalSize,
)
from twisted_exec.wire.upgrade import HeaderSet

__all__ = [
    "COMPLETED",
    "CONSOLE_IN_USE",
    "IDLE",
    "INTERNAL",
    "LINE_LOST",
    "MACHINE_DELETED",
    "POOL_DELETED",
    "POWERED_OFF",
    "REVOKED",
    "SESSION_DELETED",
    "SHUTTING_DOWN",
    "Access",
    "Around",
    "Attributes",
    "Break",
    "CannotStart",
    "Change",
    "Decision",
    "Ending",
    "HeaderSet",
    "IAPIServer",
    "IAdmission",
    "IAttachment",
    "IAttachmentTransport",
    "IAuditSink",
    "IAuthenticator",
    "IAuthorizer",
    "IBreakable",
    "IConsole",
    "IDriverMaker",
    "IHardware",
    "IHotPlug",
    "IKeeping",
    "IKept",
    "IKeptHere",
    "IKubeClient",
    "ILeader",
    "ILeaf",
    "ILeases",
    "ILeaves",
    "ILineTransport",
    "IMachineDriver",
    "IMachineLogs",
    "IMachineRuntime",
    "IMutatingAdmission",
    "IOpeningAdmission",
    "IOperable",
    "IPoollet",
    "IProviderView",
    "IProviders",
    "IRestarting",
    "IRootPods",
    "IRotates",
    "IRuleSource",
    "IRulesAuthorizer",
    "IRun",
    "ISessionReviewer",
    "IShutdown",
    "ISpaceClient",
    "ISpaceConnection",
    "ISpaceListener",
    "ISpaceProvider",
    "ISpaces",
    "IStorage",
    "IStreamLocator",
    "IWatch",
    "LeafNode",
    "LeafPod",
    "Location",
    "Look",
    "MachineFacts",
    "Opening",
    "Physical",
    "PresentedCredentials",
    "ProviderSpec",
    "Role",
    "SpaceInfo",
    "SpaceName",
    "Subject",
    "TerminalSize",
    "User",
    "Wanted",
]
