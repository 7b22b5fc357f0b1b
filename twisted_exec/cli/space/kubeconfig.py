"""
A kubeconfig for a Space, with a credential plugin or with its current credentials.

Credentials of Spaces are rotated while they are in use.  So a kubeconfig has none without
``--static``, but an exec plugin, which reads the Space's Secret with the user's own rights.
``$KUBECONFIG`` may then be the Space's, so the plugin's entry selects the cluster with the Space.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from twisted_exec.cli.failures import InputError
from twisted_exec.kube.kubeconfig.client_config import (
    NEVER,
    ClientConfig,
    ExecPlugin,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.kubeconfig.entries import NoKubeConfig, file_names
from twisted_exec.kube.kubeconfig.loader import EXEC_V1, context_name
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spaces.interfaces import SpaceName

PROGRAM = "twisted-exec"
_HINT = "Install the client of twisted-exec as its page docs/howto/install-client.rst says."

_REPEATED = ("cluster", "user", "tls_server_name", "server", "as_uid")
_PATHS = ("certificate_authority", "client_certificate", "client_key")
_SECRET = ("token", "password")


def kubeconfig_content(
    config: ClientConfig,
    name: SpaceName,
    options: argparse.Namespace,
    environ: Mapping[str, str] | None = None,
) -> bytes:
    """
    Return the kubeconfig.

    :raises InputError: a kubeconfig cannot express it, or would have a secret of the command line.
    """
    if options.static:
        return written(config, str(name))
    if config.username:
        raise InputError(
            f"space {name} is reached with a password, which cannot be asked for; give --static"
        )
    return written(with_credential_plugin(config, name, options, environ), str(name))


def with_credential_plugin(
    config: ClientConfig,
    name: SpaceName,
    options: argparse.Namespace,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Return a configuration for the same server with a credential plugin."""
    _check_no_secrets(options)
    environ = os.environ if environ is None else environ
    plugin = ExecPlugin(
        command=_program(),
        api_version=EXEC_V1,
        args=tuple(_words("exec-credential", name, options, environ)),
        env=(("KUBECONFIG", _files(options, environ)),),
        interactive_mode=NEVER,
        provide_cluster_info=True,
        install_hint=_HINT,
    )
    return replace(config, token="", certificate=Material(), key=Material(), plugin=plugin)


def command_line(name: SpaceName, options: argparse.Namespace, *more: str) -> str:
    """Return the shell command that writes a kubeconfig for a Space to a file."""
    files = _files(options, os.environ)
    variable = "" if files == os.devnull else f"KUBECONFIG={shlex.quote(files)} "
    words = [PROGRAM, *_words("kubeconfig", name, options, os.environ), *more]
    return f"{variable}{shlex.join(words)} --output FILE --force"


def _words(
    command: str, name: SpaceName, options: argparse.Namespace, environ: Mapping[str, str]
) -> Iterator[str]:
    yield from ("space", command, name.name, f"--provider={name.provider or name.namespace}")
    if options.in_cluster:
        yield "--in-cluster"
    yield from _hub_words(options, environ)


def _program() -> str:
    own = os.path.abspath(sys.argv[0])
    if os.path.basename(own) == PROGRAM and os.access(own, os.X_OK):
        return own
    return shutil.which(PROGRAM) or PROGRAM


def _files(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    try:
        return os.pathsep.join(file_names(options.kubeconfig, environ))
    except NoKubeConfig:
        # A service account, or everything is on the command line; it must never be the Space's kubeconfig.
        return os.devnull


def _check_no_secrets(options: argparse.Namespace) -> None:
    for key in _SECRET:
        if getattr(options, key):
            raise InputError(
                f"--{key} would stand in the kubeconfig for all to read; "
                "put it into a kubeconfig of its own and name that with --kubeconfig"
            )


def _hub_words(options: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        context = context_name(options.kubeconfig, options.context, environ=environ)
    except KubeConfigError:
        context = ""
    if context:
        yield f"--context={context}"
    for key in _REPEATED:
        if getattr(options, key):
            yield f"--{key.replace('_', '-')}={getattr(options, key)}"
    for key in _PATHS:
        if getattr(options, key):
            yield f"--{key.replace('_', '-')}={os.path.abspath(getattr(options, key))}"
    if options.insecure_skip_tls_verify:
        yield "--insecure-skip-tls-verify"
    if options.username:
        yield f"--username={options.username}"
    if options.impersonate:
        yield f"--as={options.impersonate}"
    for group in options.as_group or ():
        yield f"--as-group={group}"
