"""``twisted-exec pki``: the certificates that programs on several hosts need."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from twisted_exec.api.dialects import DEFAULT, DIALECTS, by_name
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import APISERVER, AUTHORITIES, PKI, Pair, create_pki, open_pki
from twisted_exec.tls.pki.renewal import (
    is_being_replaced,
    is_interrupted,
    is_of_previous,
    renew,
    replace_authorities,
    retire_authority,
)

_Command = Callable[[argparse.Namespace], list[str]]

_INTERRUPTED = """\
The replacement of the authorities was interrupted.  Finish it: twisted-exec pki renew {directory} --authorities"""
_TRUST_BOTH = """\
The authorities are being replaced.  Next, in this order:
1. Copy ca.crt, client-ca.crt and requestheader-ca.crt to their hosts.
2. Copy the renewed certificates to their hosts.
3. Write all kubeconfigs anew ('twisted-exec pki user' and 'pki poollet' with --kubeconfig and --force), and
   give them to their users.  Kubeconfigs of before will not trust the API server's new certificate.
4. When everybody has theirs: twisted-exec pki renew {directory} --apiserver"""
_NEW_APISERVER = """\
The authorities are being replaced.  Next, in this order:
1. Copy apiserver.crt and apiserver.key to the API servers.
2. When every host has its new files: twisted-exec pki renew {directory} --retire"""
_RETIRED = """\
Next: copy the authorities' files to their hosts.  Sessions of certificates that the old authorities signed then end.
Kubeconfigs trust the old serving CA until you write them anew."""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pki``."""
    parser.description = "Make the certificates that programs on several hosts need."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    _command(commands, "init", "create the three certificate authorities", _init)

    apiserver = _command(
        commands, "apiserver", "issue the certificates of exec-apiserver", _apiserver
    )
    _add_names(apiserver, "at which clients reach the API server")

    poollet = _command(commands, "poollet", "issue the certificates of exec-poollet", _poollet)
    poollet.add_argument("--pool", required=True, help="the name of its MachinePool")
    poollet.add_argument(
        "--dialect",
        choices=[dialect.name for dialect in DIALECTS],
        default=DEFAULT.name,
        help="the API of its machines (default: %(default)s)",
    )
    _add_names(poollet, "at which API servers reach the poollet")
    _add_kubeconfig(poollet)

    runtime = _command(
        commands,
        "runtime",
        "issue the certificates with which exec-runtime serves over TLS",
        _runtime,
    )
    runtime.add_argument("--runtime", required=True, help="a name for the files")
    _add_names(runtime, "at which poollets reach the runtime")

    recorder = _command(
        commands, "recorder", "issue a certificate that signs recordings", _recorder
    )
    recorder.add_argument(
        "--recorder", required=True, help="a name for the files, such as the runtime's"
    )

    user = _command(commands, "user", "issue a certificate of a user", _user)
    user.add_argument("--user", required=True, help="the user's name")
    user.add_argument(
        "--group",
        nargs="+",
        action="extend",
        default=[],
        help="groups of the user; system:masters may do everything",
    )
    user.add_argument(
        "--days",
        type=_days,
        metavar="DAYS",
        help="days until the certificate expires (default: 365)",
    )
    _add_kubeconfig(user)

    renew = _command(
        commands,
        "renew",
        "renew certificates that expire soon, and replace the authorities",
        _renew,
        force=False,
    )
    renew.add_argument(
        "--within",
        type=_days,
        default=30,
        metavar="DAYS",
        help="renew the certificates that expire within this many days (default: %(default)s)",
    )
    what = renew.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", help="renew all certificates")
    what.add_argument(
        "--authorities",
        action="store_true",
        help="create new authorities, and renew all certificates with them but the one that the "
        "API server serves with; the old authorities stay trusted",
    )
    what.add_argument(
        "--apiserver",
        action="store_true",
        help="renew the certificate of the API server with the new authorities, once all kubeconfigs "
        "contain these",
    )
    what.add_argument(
        "--retire",
        action="store_true",
        help="remove the old authorities from the files, once every host has the new certificates",
    )


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 3650:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of days from 1 to 3650')
    return int(text)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    description: str,
    command: _Command,
    *,
    force: bool = True,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=description, description=f"{description[0].upper()}{description[1:]}."
    )
    parser.add_argument("directory", metavar="DIR", help="the PKI directory")
    if force:
        parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.set_defaults(run=lambda options: _run(command, options), next_step="")
    return parser


def _add_names(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "--name",
        nargs="+",
        action="extend",
        required=True,
        metavar="HOST",
        help=f"DNS names and IP addresses {help_text}",
    )


def _add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="URL", help="https://HOST:PORT of the API server")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="also write a kubeconfig; needs --server"
    )


def _run(command: _Command, options: argparse.Namespace) -> int:
    try:
        paths = command(options)
    except TLSConfigError as problem:
        print(f"twisted-exec pki: {problem}", file=sys.stderr)
        return 1
    for path in paths:
        print(path)
    if options.next_step:
        print(options.next_step, file=sys.stderr)
    return 0


def _init(options: argparse.Namespace) -> list[str]:
    pki = create_pki(options.directory, replace=options.force)
    return [pki.serving_ca, pki.client_ca, pki.forwarding_ca]


def _apiserver(options: argparse.Namespace) -> list[str]:
    pki = open_pki(options.directory)
    pairs = pki.issue_apiserver(options.name, replace=options.force)
    return _paths(*pairs)


def _poollet(options: argparse.Namespace) -> list[str]:
    _check_kubeconfig(options)
    pki = open_pki(options.directory)
    serving, client = pki.issue_poollet(
        options.pool, options.name, dialect=by_name(options.dialect), replace=options.force
    )
    return _paths(serving, client) + _kubeconfig(pki, client, options.pool, options)


def _runtime(options: argparse.Namespace) -> list[str]:
    pki = open_pki(options.directory)
    return _paths(pki.issue_runtime(options.runtime, options.name, replace=options.force))


def _recorder(options: argparse.Namespace) -> list[str]:
    pki = open_pki(options.directory)
    return _paths(pki.issue_recorder(options.recorder, replace=options.force))


def _user(options: argparse.Namespace) -> list[str]:
    _check_kubeconfig(options)
    pki = open_pki(options.directory)
    pair = pki.issue_user(options.user, options.group, replace=options.force, days=options.days)
    return _paths(pair) + _kubeconfig(pki, pair, options.user, options)


def _renew(options: argparse.Namespace) -> list[str]:
    pki, now = open_pki(options.directory), datetime.now(UTC)
    apiserver = pki.pair(APISERVER)
    is_waiting = os.path.exists(apiserver.certificate) and is_of_previous(pki, apiserver)
    _check_order(pki, options, is_waiting)
    if options.retire:
        retired = [name for name in AUTHORITIES if retire_authority(pki, name)]
        options.next_step = _RETIRED if retired else ""
        return [pki.pair(name).certificate for name in retired]
    if options.authorities:
        replace_authorities(pki, now)
    everything = options.all or options.authorities
    waiting = apiserver if options.authorities or (is_waiting and not options.apiserver) else None
    done = renew(pki, now, None if everything else timedelta(days=options.within), waiting=waiting)
    if is_interrupted(pki):
        options.next_step = _INTERRUPTED.format(directory=options.directory)
    elif is_being_replaced(pki):
        is_waiting = apiserver.exists and is_of_previous(pki, apiserver)
        step = _TRUST_BOTH if is_waiting or options.authorities else _NEW_APISERVER
        options.next_step = step.format(directory=options.directory)
    replaced = [pki.pair(name).certificate for name in AUTHORITIES] if options.authorities else []
    return [*replaced, *_paths(*done)]


def _check_order(pki: PKI, options: argparse.Namespace, is_waiting: bool) -> None:
    """
    Check that a step of a replacement of authorities comes in its turn.

    :param is_waiting: the API server's certificate is from a previous authority.
    :raises TLSConfigError: it does not.
    """
    command = f"twisted-exec pki renew {options.directory}"
    if options.apiserver and not is_waiting:
        raise TLSConfigError(
            f"the API server's certificate is from the present authority; to replace that: {command} --authorities"
        )
    if options.all and is_waiting:
        raise TLSConfigError(
            "users whose kubeconfigs do not contain the new authority would be locked out; when all do: "
            f"{command} --apiserver"
        )
    if not (options.authorities or options.apiserver or options.retire):
        return
    apiserver = pki.pair(APISERVER)
    late = [
        pair
        for pair in pki.pairs()
        if (options.retire or pair != apiserver) and is_of_previous(pki, pair)
    ]
    if options.authorities:
        if is_being_replaced(pki) and not is_interrupted(pki) and not late:
            last = "--apiserver, then --retire" if is_waiting else "--retire"
            raise TLSConfigError(
                f"the authorities are being replaced already; first: {command} {last}"
            )
    elif is_interrupted(pki):
        raise TLSConfigError(
            f"the replacement of the authorities was interrupted; first: {command} --authorities"
        )
    elif late:
        step = " --apiserver" if late[0] == apiserver else ""
        name = os.path.basename(late[0].certificate)
        raise TLSConfigError(
            f"{name} is from an authority that is to be retired; first: {command}{step}"
        )


def _paths(*pairs: Pair) -> list[str]:
    return [path for pair in pairs for path in (pair.certificate, pair.key)]


def _check_kubeconfig(options: argparse.Namespace) -> None:
    if bool(options.server) != bool(options.kubeconfig):
        missing = "--server" if options.kubeconfig else "--kubeconfig"
        raise TLSConfigError(f"a kubeconfig needs --server and --kubeconfig: {missing} is missing")
    if not options.kubeconfig:
        return
    if not _is_https(options.server):
        raise TLSConfigError(f'--server "{options.server}": give https://HOST:PORT')
    if os.path.lexists(options.kubeconfig) and not options.force:
        raise TLSConfigError(f'"{options.kubeconfig}" exists already: give --force to replace it')


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _kubeconfig(pki: PKI, pair: Pair, user: str, options: argparse.Namespace) -> list[str]:
    if not options.kubeconfig:
        return []
    write_kubeconfig(
        options.kubeconfig,
        server=options.server,
        ca_pem=read_file(pki.serving_ca),
        certificate_pem=read_file(pair.certificate),
        key_pem=read_file(pair.key),
        user=user,
        replace=options.force,
    )
    return [str(options.kubeconfig)]
