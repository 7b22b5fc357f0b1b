"""
The command line of ``exec-standalone``; its options are declared in :mod:`.settings`.
"""

from __future__ import annotations

from functools import partial

from twisted_exec.apiserver.identity.oidc_options import OIDCOptions, issuers, web_client
from twisted_exec.program.options.declaration import settings_of
from twisted_exec.standalone import PROGRAM
from twisted_exec.standalone.settings import Settings
from twisted_exec.storage.quota import QuotaLimits


class Options(OIDCOptions):
    """Command line of the standalone program."""

    program = PROGRAM
    settings_class = Settings
    # Two of the API server, two of the poollet, one of the runtime and one of the machine.
    descriptors_per_session = 6
    group = "Start and stop"
    groups = dict.fromkeys(("API server", "Storage", "Users", "Spaces"), ())
    synopsis = "[options]"
    longdesc = (
        "API server, poollet, runtime and Space Manager on loopback, with certificates made on the first "
        "start and two machines: demo-shell, a shell of your own, and with QEMU demo-vm, which boots U-Boot."
    )

    def postOptions(self) -> None:
        super().postOptions()
        self.check_pairs()


def settings(options: Options) -> Settings:
    """Convert the command line to the settings of the program."""
    storage = options["storage"]
    limits = settings_of(QuotaLimits, options)
    return settings_of(
        Settings,
        options,
        issuers=issuers(options),
        storage=partial(storage, limits=limits) if storage else None,
        sessions=options.session_limits(),
        web_client=web_client(options),
    )
