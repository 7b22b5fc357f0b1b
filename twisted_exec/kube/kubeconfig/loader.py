"""
Loading of kubeconfig files.

Merging follows ``k8s.io/client-go/tools/clientcmd``: of several files, the first that defines a
name provides the whole entry. An unsupported kind of credential or proxy is an error: without it a
client would reach the wrong server or act as the wrong user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.api.names import path_segment
from twisted_exec.kube.kubeconfig.client_config import (
    ALWAYS,
    IF_AVAILABLE,
    NEVER,
    ClientConfig,
    ExecPlugin,
    ImpersonatedUser,
    KubeConfigError,
)
from twisted_exec.kube.kubeconfig.entries import (
    ConfigEntry,
    ConfigFile,
    ConfigFiles,
    NoKubeConfig,
    file_names,
)
from twisted_exec.kube.kubeconfig.environment import (
    SERVICE_ACCOUNT,
    checked_proxy,
    in_cluster,
    proxy_for,
)

EXEC_V1, EXEC_V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""Name of the cluster's extension with data for credential plugins."""

MAX_INLINE_BYTES = 256 << 10
"""Limit of a kubeconfig that is not a file."""

_OUTSIDE = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
    "tokenFile": "token",
    "exec": "a token or a certificate",
    "auth-provider": "a token or a certificate",
}
"""Fields that refer to files or programs, with the field to use in data from others."""

_INSTEAD_OF_PROVIDER = {
    "gcp": "the credential plugin gke-gcloud-auth-plugin",
    "azure": "the credential plugin kubelogin",
    "oidc": "the credential plugin kubectl-oidc_login",
}


@dataclass(frozen=True)
class Overrides:
    """
    Values that override the files, like kubectl's options of these names, unless they are ``None``
    or empty.

    Paths are relative to the working directory.

    :param impersonate: kubectl's ``--as``, ``--as-uid`` and ``--as-group``.
    """

    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None
    server: str | None = None
    certificate_authority: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    token: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    impersonate: ImpersonatedUser = ImpersonatedUser()

    def on_cluster(self, entry: ConfigEntry) -> ConfigEntry:
        """
        Return a cluster's entry with the overrides.

        Trust is overridden as a whole.
        """
        value = dict(entry.value)
        if self.insecure_skip_tls_verify or self.certificate_authority:
            for key in ("certificate-authority", "certificate-authority-data"):
                value.pop(key, None)
            value["insecure-skip-tls-verify"] = self.insecure_skip_tls_verify
            _put(value, "certificate-authority", _absolute(self.certificate_authority))
        if self.server:
            value["server"] = self.server
            value.pop("tls-server-name", None)
        _put(value, "tls-server-name", self.tls_server_name)
        return _changed(entry, value)

    def on_user(self, entry: ConfigEntry) -> ConfigEntry:
        """Return a user's entry with the overrides."""
        value = dict(entry.value)
        if self.token:
            value.pop("tokenFile", None)
        for path, key in (
            (self.client_certificate, "client-certificate"),
            (self.client_key, "client-key"),
        ):
            if path:
                value.pop(f"{key}-data", None)
                value[key] = _absolute(path)
        _put(value, "token", self.token)
        _put(value, "username", self.username)
        _put(value, "password", self.password)
        _put(value, "as", self.impersonate.user)
        _put(value, "as-uid", self.impersonate.uid)
        _put(value, "as-groups", list(self.impersonate.groups))
        return _changed(entry, value)


def _changed(entry: ConfigEntry, value: dict[str, Any]) -> ConfigEntry:
    if value == entry.value:
        return entry
    return replace(entry, value=value, is_changed=True)


def _put(value: dict[str, Any], key: str, content: Any) -> None:
    if content:
        value[key] = content


def _absolute(path: str | None) -> str | None:
    return os.path.abspath(path) if path else None


def load(
    path: str | None = None,
    context: str | None = None,
    *,
    overrides: Overrides | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: str = SERVICE_ACCOUNT,
) -> ClientConfig:
    """
    Return the configuration that kubectl would use.

    :param path: one file, as in ``--kubeconfig``; by default as in kubectl, or in a Pod its service
        account.
    :param context: instead of ``current-context``.
    :param overrides: values that override the files.
    :param service_account: mount point of a Pod's credentials.
    :raises KubeConfigError: there is no usable configuration.
    """
    environ = os.environ if environ is None else environ
    overrides = overrides or Overrides()
    files = _files(path, overrides, environ, service_account)
    config = _assemble(files, context or "", overrides)
    if not config.proxy_url:
        config = replace(config, proxy_url=proxy_for(config.url, environ))
    return config


def context_name(
    path: str | None = None, context: str | None = None, *, environ: Mapping[str, str] | None = None
) -> str:
    """
    Return the name of the context that :func:`load` would use; empty if there is none.

    :raises KubeConfigError: there is no usable file.
    """
    if context:
        return context
    names = file_names(path, os.environ if environ is None else environ)
    return ConfigFiles([ConfigFile.read(name) for name in names]).context("", False).name


def load_inline(
    content: bytes,
    source: str,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """
    Return the configuration of a kubeconfig that is not a file.

    The author of such data may have no rights on this host, so fields that would make this process
    run a program or open a file are refused.

    :param source: name for messages in place of the file.
    :param content: YAML or JSON, 256 KiB or less.
    :raises KubeConfigError: it cannot be used.
    """
    file = check_inline(content, source)
    config = _assemble(ConfigFiles([file]), context or "", Overrides())
    if config.proxy_url:
        return config
    return replace(
        config, proxy_url=proxy_for(config.url, os.environ if environ is None else environ)
    )


def check_inline(content: bytes, source: str) -> ConfigFile:
    """
    Parse and check a kubeconfig that is not a file.

    :raises KubeConfigError: it cannot be used, or names a file or a program.
    """
    if len(content) > MAX_INLINE_BYTES:
        raise KubeConfigError(
            f"{source}: the kubeconfig is larger than {MAX_INLINE_BYTES >> 10} KiB"
        )
    file = ConfigFile.parse(source, content)
    if not content.strip():
        raise KubeConfigError(f"{source}: the kubeconfig is empty")
    for section, noun in (("clusters", "cluster"), ("users", "user")):
        for entry in file.entries(section, noun):
            _refuse_outside(entry)
    return file


def _refuse_outside(entry: ConfigEntry) -> None:
    for key, instead in _OUTSIDE.items():
        if entry.value.get(key):
            raise entry.fail(f"{key} is not taken from here; use {instead}")


def _files(
    path: str | None, overrides: Overrides, environ: Mapping[str, str], service_account: str
) -> ConfigFiles:
    try:
        files = ConfigFiles([ConfigFile.read(name) for name in file_names(path, environ)])
        if path or not files.are_empty or overrides.server:
            return files
        missing = KubeConfigError(
            f"{files.names}: names no cluster and no user", "set KUBECONFIG or give --kubeconfig"
        )
    except NoKubeConfig as error:
        if path:
            raise
        if overrides.server:
            return ConfigFiles([])
        missing = error
    document = in_cluster(environ, service_account)
    if document is None:
        raise missing
    return ConfigFiles([ConfigFile(service_account, document)])


def _assemble(files: ConfigFiles, context_name: str, overrides: Overrides) -> ClientConfig:
    context = files.context(context_name, not (overrides.cluster or overrides.server))
    cluster_name = overrides.cluster or context.text("cluster")
    user_name = overrides.user or context.text("user")
    wanted_by = f'context "{context.name}"' if context.name else ""
    cluster = ConfigEntry("cluster", "", context.file, {})
    if cluster_name:
        cluster = files.find(
            "clusters", "cluster", cluster_name, "" if overrides.cluster else wanted_by
        )
    elif not overrides.server:
        raise context.fail("no cluster is named")
    user = ConfigEntry("user", "", context.file, {})
    if user_name:
        user = files.find("users", "user", user_name, "" if overrides.user else wanted_by)
    cluster, user = overrides.on_cluster(cluster), overrides.on_user(user)
    config = _with_user(_with_cluster(cluster, context), user, cluster)
    if overrides.namespace:
        config = replace(config, namespace=overrides.namespace)
    entry = f'user "{user.name}" in {config.source}' if user.name else config.source
    is_given = overrides.token or overrides.client_certificate or overrides.username
    config = replace(config, credentials_source="the command line" if is_given else entry)
    if config.has_credentials and config.in_the_clear:
        raise cluster.fail("credentials would travel in the clear; use an https:// server")
    return config


def _with_cluster(cluster: ConfigEntry, context: ConfigEntry) -> ClientConfig:
    server = cluster.text("server").rstrip("/")
    check_server(server, cluster.fail)
    ca = cluster.material("certificate-authority")
    insecure = cluster.get("insecure-skip-tls-verify", bool, False)
    # client-go refuses this, too (transport.TLSConfigFor).
    if ca and insecure:
        raise cluster.fail("insecure-skip-tls-verify cannot go with a certificate-authority")
    named = f' (context "{context.name}")' if context.name else ""
    namespace = context.text("namespace") or "default"
    if wrong := path_segment(namespace):
        raise context.fail(f'namespace "{namespace}" is no name: {wrong[0]}')
    return ClientConfig(
        server=server,
        namespace=namespace,
        ca=ca,
        tls_server_name=cluster.text("tls-server-name"),
        insecure_skip_tls_verify=insecure,
        proxy_url=_proxy(cluster),
        source=f"{context.file}{named}",
    )


def _proxy(cluster: ConfigEntry) -> str:
    proxy = cluster.text("proxy-url")
    if not proxy:
        return ""
    return checked_proxy(proxy, lambda problem: cluster.fail(f"proxy-url {problem}"))


def _with_user(config: ClientConfig, user: ConfigEntry, cluster: ConfigEntry) -> ClientConfig:
    _refuse_provider(user)
    certificate = user.material("client-certificate")
    key = user.material("client-key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise user.fail(f"{missing} is missing")
    token, token_file = user.text("token"), user.path("tokenFile")
    if token_file and not token:  # with a token, the file may be missing for now
        user.check_readable("tokenFile", token_file)
    username = user.text("username")
    # Likewise (transport.HTTPWrappersForConfig).
    if username and (token or token_file):
        raise user.fail("username cannot go with a token")
    return replace(
        config,
        certificate=certificate,
        key=key,
        token=token,
        token_file=token_file,
        username=username,
        password=user.text("password"),
        plugin=_plugin(user, cluster),
        impersonate=_impersonation(user),
    )


def _refuse_provider(user: ConfigEntry) -> None:
    if not user.value.get("auth-provider"):
        return
    provider = user.inner("auth-provider", user.value["auth-provider"]).text("name")
    instead = _INSTEAD_OF_PROVIDER.get(provider, "a credential plugin")
    raise user.fail(f"auth-provider is not supported; use {instead} (exec), or a token")


def _impersonation(user: ConfigEntry) -> ImpersonatedUser:
    extra = user.inner("as-user-extra", user.value.get("as-user-extra") or {})
    impersonation = ImpersonatedUser(
        user.text("as"),
        user.text("as-uid"),
        user.texts("as-groups"),
        # By text: keys of other types are refused below.
        tuple((key, extra.texts(key)) for key in sorted(extra.value, key=str)),
    )
    if not impersonation and (impersonation.uid or impersonation.groups or impersonation.extra):
        raise user.fail("as is missing: as-uid, as-groups and as-user-extra go with it")
    if not all(isinstance(key, str) and key and key.isprintable() for key in extra.value):
        raise extra.fail("a key is not a printable string")
    return impersonation


def _plugin(user: ConfigEntry, cluster: ConfigEntry) -> ExecPlugin | None:
    if user.value.get("exec") is None:
        return None
    plugin = user.inner("exec", user.value["exec"])
    command, version = plugin.text("command"), plugin.text("apiVersion")
    if not command:
        raise plugin.fail("command is missing")
    if version not in (EXEC_V1, EXEC_V1BETA1):
        raise plugin.fail(f'apiVersion "{version}" is neither {EXEC_V1} nor {EXEC_V1BETA1}')
    # Only v1beta1 has a default (Kubernetes, "client-go credential plugins").
    mode = plugin.text("interactiveMode") or (IF_AVAILABLE if version == EXEC_V1BETA1 else "")
    if mode not in (NEVER, IF_AVAILABLE, ALWAYS):
        raise plugin.fail(f"interactiveMode must be {NEVER}, {IF_AVAILABLE} or {ALWAYS}")
    return ExecPlugin(
        # Only a name without a slash is looked up in PATH.
        command=plugin.path("command") if os.sep in command else command,
        api_version=version,
        args=plugin.texts("args"),
        env=_environment(plugin),
        interactive_mode=mode,
        provide_cluster_info=plugin.get("provideClusterInfo", bool, False),
        cluster_config=_plugin_config(cluster),
        install_hint=plugin.get("installHint", str, ""),
    )


def _environment(plugin: ConfigEntry) -> tuple[tuple[str, str], ...]:
    pairs = []
    for number, item in enumerate(plugin.get("env", list, [])):
        entry = plugin.inner(f"env[{number}]", item)
        name, value = entry.text("name"), entry.get("value", str, "")
        if not name or "=" in name or "\0" in value:
            raise entry.fail("is no variable of an environment")
        pairs.append((name, value))
    return tuple(pairs)


def _plugin_config(cluster: ConfigEntry) -> str:
    for number, item in enumerate(cluster.get("extensions", list, [])):
        entry = cluster.inner(f"extensions[{number}]", item)
        if entry.value.get("name") == EXEC_EXTENSION:
            try:
                return json.dumps(entry.value.get("extension"), sort_keys=True, allow_nan=False)
            except (TypeError, ValueError, RecursionError):
                raise entry.fail("extension cannot be told as JSON") from None
    return ""


def check_server(server: str, fail: Callable[[str], Exception]) -> None:
    """
    Raise ``fail(problem)`` unless ``server`` is an ``http`` or ``https`` URL of a host.
    """
    try:
        url = urlsplit(server)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        usable = usable and server.isascii() and " " not in server
    except ValueError:
        usable = False
    if not usable:
        raise fail(f'server "{server}" is not an https:// URL' if server else "no server is given")
    if url.username or url.password or url.query or url.fragment:
        raise fail("server must not hold a user, a query or a fragment")
