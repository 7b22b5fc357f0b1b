"""Tests for :mod:`twisted_exec.kube.kubeconfig.loader`."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ExecPlugin,
    ImpersonatedUser,
    KubeConfigError,
)
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES, Overrides, load, load_inline

CLUSTER = "clusters: [{name: c, cluster: {server: 'https://api:6443'}}]\n"
CONTEXT = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"


class KubeconfigTestCase(SynchronousTestCase):
    """Writes kubeconfigs into a private directory."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()

    def write(self, content: str, name: str = "config") -> str:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return str(path)

    def user(self, user: str) -> ClientConfig:
        """Load a kubeconfig whose only user has these settings."""
        users = f"users: [{{name: u, user: {{{user}}}}}]\n"
        return load(self.write(CLUSTER + CONTEXT + users))

    def refusal(self, content: str, context: str | None = None) -> str:
        """Return the error of loading ``content``: one line that names the file."""
        path = self.write(content)
        with self.assertRaises(KubeConfigError) as caught:
            load(path, context)
        message = str(caught.exception)
        self.assertIn(path, message)
        self.assertNotIn("\n", message)
        return message.replace(path, "FILE")


class ChoiceTests(KubeconfigTestCase):
    """Selection of files and context."""

    def test_minimal(self) -> None:
        """Server and namespace come from the current context; the namespace defaults."""
        config = load(self.write(CLUSTER + CONTEXT + "users: [{name: u, user: {}}]"))
        self.assertEqual(config.server, "https://api:6443")
        self.assertEqual(config.namespace, "default")
        self.assertFalse(config.has_credentials)

    def test_context_option(self) -> None:
        """A named context wins over the current one."""
        other = (
            "contexts: [{name: x, context: {cluster: nope}},"
            " {name: y, context: {cluster: c, namespace: lab}}]\ncurrent-context: x\n"
        )
        self.assertEqual(load(self.write(CLUSTER + other), "y").namespace, "lab")

    def test_list_first_definition_wins(self) -> None:
        """The first file that defines a name wins; missing files are skipped."""
        first = self.write(CLUSTER, "first")
        second = self.write(
            "clusters: [{name: c, cluster: {server: 'https://other'}}]\n"
            + CONTEXT
            + "users: [{name: u, user: {token: t}}]",
            "second",
        )
        environ = {"KUBECONFIG": os.pathsep.join([first, str(self.directory / "no"), "", second])}
        config = load(environ=environ)
        self.assertEqual((config.server, config.token), ("https://api:6443", "t"))

    def test_home(self) -> None:
        """Without KUBECONFIG, the file in the home directory is used."""
        self.write(CLUSTER + CONTEXT + "users: [{name: u, user: {}}]", "home/.kube/config")
        config = load(environ={"HOME": str(self.directory / "home")})
        self.assertEqual(config.server, "https://api:6443")

    def test_standalone(self) -> None:
        """The kubeconfig of an exec-standalone that does not run is explained."""
        path = "exec-state/admin.kubeconfig"
        for option, environ in ((path, {}), (None, {"KUBECONFIG": path})):
            with self.assertRaises(KubeConfigError) as caught:
                load(option, environ=environ)
            self.assertIn(
                f"no kubeconfig: {os.getcwd()}/{path} does not exist; the path {path} is relative to the "
                "present directory; start exec-standalone, in the directory",
                str(caught.exception),
            )

    def test_no_file(self) -> None:
        """Without any file, the error names the missing path and the options."""
        with self.assertRaises(KubeConfigError) as caught:
            load(environ={"KUBECONFIG": "/nonexistent/kubeconfig"})
        self.assertEqual(
            str(caught.exception),
            "no kubeconfig: /nonexistent/kubeconfig does not exist; "
            "set KUBECONFIG or give --kubeconfig",
        )

    def test_named_file_missing(self) -> None:
        """An explicitly named file must exist."""
        with self.assertRaises(KubeConfigError) as caught:
            load("/nonexistent/kubeconfig")
        told = "no kubeconfig: /nonexistent/kubeconfig does not exist; set KUBECONFIG or give --kubeconfig"
        self.assertEqual(str(caught.exception), told)

    def test_relative_paths(self) -> None:
        """A relative path is relative to the file that holds it."""
        self.write("PEM", "deep/pki/ca.crt")
        path = self.write(
            "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: pki/ca.crt}}]\n"
            "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x",
            "deep/config",
        )
        config = load(path)
        self.assertEqual(config.ca.path, str(self.directory / "deep/pki/ca.crt"))
        self.assertEqual(config.ca.read(), b"PEM")


class CredentialTests(KubeconfigTestCase):
    """User credentials."""

    def test_data_wins(self) -> None:
        """Inline data takes precedence over a file."""
        data = base64.b64encode(b"CERT").decode()
        key = base64.b64encode(b"KEY").decode()
        config = self.user(
            f"client-certificate: /nonexistent, client-certificate-data: {data}, "
            f"client-key-data: {key}"
        )
        self.assertEqual((config.certificate.read(), config.key.read()), (b"CERT", b"KEY"))

    def test_token_file(self) -> None:
        """A token file's path is made absolute; the file is read later."""
        self.write("secret", "token")
        self.assertEqual(self.user("tokenFile: token").token_file, str(self.directory / "token"))

    def test_secrets_are_not_shown(self) -> None:
        """The representation of a configuration holds no secret."""
        config = self.user("token: canary-token")
        self.assertNotIn("canary", repr(config))
        config = self.user("username: u, password: canary-password")
        self.assertNotIn("canary", repr(config))

    def test_file_is_read_again(self) -> None:
        """A certificate file is read again after it changes."""
        path = self.write("one", "tls.crt")
        self.write("key", "tls.key")
        config = self.user("client-certificate: tls.crt, client-key: tls.key")
        before = config.certificate.stamp()
        Path(path).write_text("number two")
        self.assertNotEqual(config.certificate.stamp(), before)
        self.assertEqual(config.certificate.read(), b"number two")


class WholeTests(KubeconfigTestCase):
    """Plugins, impersonation and proxies."""

    def test_plugin(self) -> None:
        """
        A plugin's command is looked up in PATH, or is relative to the file if it contains a slash.
        """
        config = self.user(
            "exec: {command: bin/login, args: [a, b], env: [{name: N, value: 'v'}, {name: M}],"
            " apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never,"
            " provideClusterInfo: true, installHint: get it}"
        )
        self.assertEqual(
            config.plugin,
            ExecPlugin(
                str(self.directory / "bin/login"),
                "client.authentication.k8s.io/v1",
                args=("a", "b"),
                env=(("N", "v"), ("M", "")),
                interactive_mode="Never",
                provide_cluster_info=True,
                install_hint="get it",
            ),
        )
        self.assertTrue(config.needs_plugin and config.has_credentials)
        config = self.user(
            "exec: {command: login, apiVersion: client.authentication.k8s.io/v1beta1}"
        )
        assert config.plugin is not None
        self.assertEqual(config.plugin.command, "login")
        self.assertEqual(config.plugin.interactive_mode, "IfAvailable")

    def test_plugin_comes_last(self) -> None:
        """Any other credential takes precedence over the plugin."""
        plugin = "exec: {command: x, apiVersion: client.authentication.k8s.io/v1beta1}"
        self.assertFalse(self.user(f"token: t, {plugin}").needs_plugin)
        self.assertFalse(self.user(f"username: u, password: p, {plugin}").needs_plugin)

    def test_plugin_config(self) -> None:
        """A plugin gets the cluster's extension named ``client.authentication.k8s.io/exec``."""
        cluster = (
            "clusters: [{name: c, cluster: {server: 'https://a', extensions: ["
            "{name: other, extension: 1},"
            "{name: client.authentication.k8s.io/exec, extension: {b: [1, x], a: null}}]}}]\n"
        )
        user = "{exec: {command: x, apiVersion: client.authentication.k8s.io/v1beta1}}"
        config = load(self.write(f"{cluster}{CONTEXT}users: [{{name: u, user: {user}}}]"))
        assert config.plugin is not None
        self.assertEqual(config.plugin.cluster_config, '{"a": null, "b": [1, "x"]}')
        self.refusal(
            f"{cluster.replace('null', '.inf')}{CONTEXT}users: [{{name: u, user: {user}}}]"
        )

    def test_impersonation(self) -> None:
        """Impersonation has user, uid, groups and extra."""
        config = self.user(
            "token: t, as: jane, as-uid: '7', as-groups: [dev, ops],"
            " as-user-extra: {scopes: [a, b], k: []}"
        )
        self.assertEqual(
            config.impersonate,
            ImpersonatedUser("jane", "7", ("dev", "ops"), (("k", ()), ("scopes", ("a", "b")))),
        )

    def test_proxy(self) -> None:
        """``proxy-url`` may be http, https or socks5; ``tls-server-name`` is kept."""
        for url in ("http://p:3128", "https://p", "socks5://u:p@[::1]:1080"):
            path = self.write(
                f"clusters: [{{name: c, cluster: {{server: 'https://a', proxy-url: '{url}',"
                f" tls-server-name: b}}}}]\n{CONTEXT}users: [{{name: u, user: {{}}}}]"
            )
            config = load(path, environ={"HTTPS_PROXY": "http://other"})
            self.assertEqual((config.proxy_url, config.tls_server_name), (url, "b"))

    def test_proxy_of_the_environment(self) -> None:
        """Without ``proxy-url``, the proxy comes from the environment, as in Go clients."""
        path = self.write(CLUSTER + CONTEXT + "users: [{name: u, user: {}}]")
        self.assertEqual(load(path, environ={"https_proxy": "p:1"}).proxy_url, "http://p:1")

    def test_token_in_reserve(self) -> None:
        """With a token, the token file may be missing."""
        config = self.user("token: t, tokenFile: /nonexistent")
        self.assertEqual((config.token, config.token_file), ("t", "/nonexistent"))


class OverrideTests(KubeconfigTestCase):
    """Command line options override the files."""

    def load(self, user: str = "", cluster: str = "", **more: Any) -> ClientConfig:
        self.write("PEM", "ca.crt")
        path = self.write(
            f"clusters: [{{name: c, cluster: {{server: 'https://a', {cluster}}}}},"
            " {name: d, cluster: {server: 'https://d'}}]\n"
            f"{CONTEXT}users: [{{name: u, user: {{{user}}}}}, {{name: v, user: {{token: v}}}}]"
        )
        return load(path, overrides=Overrides(**more), environ={})

    def test_names(self) -> None:
        """Options select another cluster, user or namespace."""
        path = self.write(
            "clusters: [{name: c, cluster: {server: 'https://a'}}]\n"
            "users: [{name: v, user: {token: v}}]"
        )
        config = load(path, overrides=Overrides(cluster="c", user="v", namespace="lab"))
        self.assertEqual((config.server, config.token, config.namespace), ("https://a", "v", "lab"))
        with self.assertRaises(KubeConfigError) as caught:
            load(path, overrides=Overrides(cluster="x"))
        self.assertEqual(str(caught.exception), f'{path}: no cluster "x"; there are: c')
        path = self.write(CLUSTER + CONTEXT + "users: [{name: u, user: {token: t}}]")
        with self.assertRaises(KubeConfigError) as caught:
            load(path, overrides=Overrides(user="x"))
        self.assertEqual(str(caught.exception), f'{path}: no user "x"; there are: u')

    def test_server(self) -> None:
        """Another server drops the old ``tls-server-name``."""
        config = self.load(cluster="tls-server-name: n", server="https://b:1")
        self.assertEqual((config.server, config.tls_server_name), ("https://b:1", ""))
        config = self.load(cluster="tls-server-name: n", tls_server_name="m")
        self.assertEqual((config.server, config.tls_server_name), ("https://a", "m"))

    def test_trust(self) -> None:
        """A CA option and ``insecure-skip-tls-verify`` replace each other."""
        config = self.load(cluster="certificate-authority: ca.crt", insecure_skip_tls_verify=True)
        self.assertTrue(config.insecure_skip_tls_verify)
        self.assertFalse(config.ca)
        mine = self.write("MINE", "mine.crt")
        config = self.load(
            cluster="insecure-skip-tls-verify: true", certificate_authority=os.path.relpath(mine)
        )
        self.assertFalse(config.insecure_skip_tls_verify)
        self.assertEqual(config.ca.path, mine)
        with self.assertRaises(KubeConfigError):
            self.load(certificate_authority=mine, insecure_skip_tls_verify=True)

    def test_credentials(self) -> None:
        """Options replace token, certificate, impersonation and user name."""
        config = self.load("tokenFile: ca.crt", token="t")
        self.assertEqual((config.token, config.token_file), ("t", ""))
        pem = self.write("PEM", "x.pem")
        config = self.load(
            "client-certificate-data: QUJD, client-key-data: QUJD",
            client_certificate=pem,
            client_key=pem,
        )
        self.assertEqual((config.certificate.path, config.key.path), (pem, pem))
        config = self.load(
            "as: a, as-groups: [g]", impersonate=ImpersonatedUser("b", groups=("h",)), username="n"
        )
        self.assertEqual(config.impersonate, ImpersonatedUser("b", groups=("h",)))
        self.assertEqual(config.username, "n")

    def test_no_file(self) -> None:
        """A server option needs no file."""
        config = load(
            environ={"KUBECONFIG": "/nonexistent"},
            overrides=Overrides(server="https://b", token="t"),
        )
        self.assertEqual(
            (config.server, config.token, config.namespace), ("https://b", "t", "default")
        )


class PodTests(KubeconfigTestCase):
    """Configuration in a pod, without any file."""

    ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/"}

    def pod(self, **more: str) -> ClientConfig:
        environ = {**self.ENVIRON, "KUBECONFIG": "/nonexistent", **more}
        return load(environ=environ, service_account=str(self.directory))

    def test_service_account(self) -> None:
        """A pod uses its service account; the token file is read later."""
        self.write("first", "token")
        self.write("PEM", "ca.crt")
        self.write("lab\n", "namespace")
        config = self.pod()
        self.assertEqual(config.server, "https://10.0.0.1:443")
        self.assertEqual((config.ca.read(), config.namespace), (b"PEM", "lab"))
        self.assertEqual(config.token_file, str(self.directory / "token"))
        config = self.pod(KUBERNETES_SERVICE_HOST="fd00::1", POD_NAMESPACE="other")
        self.assertEqual((config.server, config.namespace), ("https://[fd00::1]:443", "other"))

    def test_bare(self) -> None:
        """Without a CA the system's CAs apply; without a namespace, ``default``."""
        self.write("first", "token")
        config = self.pod()
        self.assertFalse(config.ca)
        self.assertEqual(config.namespace, "default")

    def test_files_go_first(self) -> None:
        """A kubeconfig takes precedence over the service account, unless it is empty."""
        self.write("first", "token")
        path = self.write(CLUSTER + CONTEXT + "users: [{name: u, user: {}}]", "mine")
        self.assertEqual(self.pod(KUBECONFIG=path).server, "https://api:6443")
        empty = self.write("kind: Config", "empty")
        self.assertEqual(self.pod(KUBECONFIG=empty).server, "https://10.0.0.1:443")
        with self.assertRaises(KubeConfigError):
            load(empty, environ=self.ENVIRON, service_account=str(self.directory))

    def test_no_pod(self) -> None:
        """Outside a pod, the error is the missing kubeconfig."""
        with self.assertRaises(KubeConfigError) as caught:
            self.pod()
        self.assertIn("no kubeconfig: /nonexistent does not exist", str(caught.exception))


class RefusalTests(KubeconfigTestCase):
    """Invalid kubeconfigs fail with one line that names the file and entry."""

    def with_user(self, user: str) -> str:
        return self.refusal(CLUSTER + CONTEXT + f"users: [{{name: u, user: {{{user}}}}}]")

    def with_cluster(self, cluster: str, user: str = "") -> str:
        return self.refusal(
            f"clusters: [{{name: c, cluster: {{{cluster}}}}}]\n{CONTEXT}"
            f"users: [{{name: u, user: {{{user}}}}}]"
        )

    def test_exec_plugin(self) -> None:
        """Each error in a plugin's entry names its key."""
        v1 = "apiVersion: client.authentication.k8s.io/v1"
        for plugin, told in (
            ("3", "exec must be a mapping"),
            ("{}", "exec: command is missing"),
            ("{command: x}", 'exec: apiVersion "" is neither client.authentication.k8s.io/v1 nor'),
            (
                "{command: x, apiVersion: client.authentication.k8s.io/v1alpha1}",
                'exec: apiVersion "client.authentication.k8s.io/v1alpha1" is neither',
            ),
            (f"{{command: x, {v1}}}", "interactiveMode must be Never, IfAvailable or Always"),
            (f"{{command: x, {v1}, interactiveMode: Maybe}}", "interactiveMode must be"),
            (
                f"{{command: x, {v1}, interactiveMode: Never, args: [3]}}",
                "args[0] must be a string",
            ),
            (f"{{command: x, {v1}, interactiveMode: Never, env: [3]}}", "env[0] must be a mapping"),
            (
                f"{{command: x, {v1}, interactiveMode: Never, env: [{{value: canary}}]}}",
                "exec: env[0]: is no variable of an environment",
            ),
        ):
            refusal = self.with_user(f"exec: {plugin}")
            self.assertIn(told, refusal)
            self.assertNotIn("canary", refusal)

    def test_auth_provider(self) -> None:
        """``auth-provider`` is refused, with the replacement in the message."""
        self.assertEqual(
            self.with_user("auth-provider: {name: gcp}"),
            'FILE: user "u": auth-provider is not supported; use the credential plugin '
            "gke-gcloud-auth-plugin (exec), or a token",
        )
        self.assertIn("use a credential plugin", self.with_user("auth-provider: {name: x}"))

    def test_impersonation(self) -> None:
        """Impersonated groups, uid or extra without a user are refused."""
        for part in ("as-uid: x", "as-groups: [g]", "as-user-extra: {k: [v]}"):
            self.assertIn("as is missing", self.with_user(part))
        self.assertIn("as-groups[1] must be a string", self.with_user("as: x, as-groups: [g, 3]"))
        told = self.with_user('as: x, as-user-extra: {k: ["a\\nb"]}')
        self.assertIn("as-user-extra: k[0] holds a character", told)

    def test_twice(self) -> None:
        """A name defined twice in one file is refused."""
        users = "users: [{name: u, user: {}}, {name: u, user: {token: t}}]"
        self.assertEqual(self.refusal(CLUSTER + CONTEXT + users), 'FILE: users names "u" twice')

    def test_unused_entries_may_be_anything(self) -> None:
        """Invalid users of other contexts do not matter."""
        users = "users: [{name: u, user: {}}, {name: v, user: {exec: {command: x}}}]"
        self.assertEqual(load(self.write(CLUSTER + CONTEXT + users)).server, "https://api:6443")

    def test_proxy(self) -> None:
        """An invalid ``proxy-url`` is refused without showing it, as it may hold a password."""
        for url in (
            "ftp://p",
            "socks4://canary@p",
            "http://",
            "p:3128",
            "http://a b",
            "http://p:x",
        ):
            told = self.with_cluster(f"server: 'https://a', proxy-url: '{url}'")
            self.assertEqual(
                told,
                'FILE: cluster "c": proxy-url is not an http://, https:// or socks5:// URL of a host',
            )

    def test_insecure_with_ca(self) -> None:
        """``insecure-skip-tls-verify`` together with a CA is refused."""
        self.assertEqual(
            self.with_cluster(
                "server: 'https://a', insecure-skip-tls-verify: true,"
                " certificate-authority-data: QUJD"
            ),
            'FILE: cluster "c": insecure-skip-tls-verify cannot go with a certificate-authority',
        )

    def test_plain_http_with_credentials(self) -> None:
        """Credentials over plain HTTP are refused, except to loopback."""
        self.assertEqual(
            self.with_cluster("server: 'http://10.0.0.1'", "token: t"),
            'FILE: cluster "c": credentials would travel in the clear; use an https:// server',
        )
        self.assertIn(
            "in the clear", self.with_cluster("server: 'http://127.0.0.1.example'", "token: t")
        )
        path = self.write(
            "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:8001'}}]\n"
            f"{CONTEXT}users: [{{name: u, user: {{token: t}}}}]"
        )
        self.assertEqual(load(path).token, "t")

    def test_server(self) -> None:
        """A server must be a valid URL without user and password."""
        for server in (
            "api:6443",
            "https://a b",
            "https://\u00e4",
            "ftp://a",
            "https://",
            "https://a:99999",
            "https://[::1",
        ):
            self.assertIn("is not an https:// URL", self.with_cluster(f"server: '{server}'"))
        self.assertIn("no server is given", self.with_cluster(""))
        self.assertIn("must not hold a user", self.with_cluster("server: 'https://u:p@a'"))

    def test_half_a_pair(self) -> None:
        """A certificate without its key is refused, and the other way round."""
        self.assertIn("client-key is missing", self.with_user("client-certificate-data: QUJD"))
        self.assertIn("client-certificate is missing", self.with_user("client-key-data: QUJD"))

    def test_unprintable(self) -> None:
        """Control characters in credentials are refused, without showing them."""
        for user in ('token: "canary\\n"', 'tokenFile: "canary\\0"'):
            told = self.with_user(user)
            self.assertIn("holds a character that cannot be printed", told)
            self.assertNotIn("canary", told)
        with self.assertRaises(KubeConfigError):
            load("/nonexistent\0")

    def test_missing_file(self) -> None:
        """A missing token file fails on loading."""
        self.assertEqual(
            self.with_user("tokenFile: /nonexistent/token"),
            'FILE: user "u": tokenFile: /nonexistent/token: No such file or directory',
        )

    def test_fifo(self) -> None:
        """A FIFO, to which nobody may ever write, is refused wherever a file is named."""
        fifo = str(self.directory / "fifo")
        os.mkfifo(fifo)
        for user in (
            f"tokenFile: {fifo}",
            f"client-certificate: {fifo}, client-key-data: QUJD",
            f"client-certificate-data: QUJD, client-key: {fifo}",
        ):
            self.assertIn(f"{fifo}: it is not a regular file", self.with_user(user))
        cluster = f"server: 'https://a', certificate-authority: {fifo}"
        self.assertIn(f"{fifo}: it is not a regular file", self.with_cluster(cluster))
        with self.assertRaises(KubeConfigError) as caught:
            load(fifo)
        self.assertIn("not a regular file", str(caught.exception))

    def test_process_substitution(self) -> None:
        """A kubeconfig may come through a descriptor, as from a shell's ``<(command)``."""
        content = CLUSTER + CONTEXT + "users: [{name: u, user: {token: t}}]\n"
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        with open(writing, "w", encoding="utf-8") as stream:
            stream.write(content)
        self.assertEqual(load(f"/dev/fd/{reading}").token, "t")

    def test_bad_base64(self) -> None:
        """Data must be base64."""
        self.assertIn("client-key-data is not base64", self.with_user("client-key-data: QUJ*"))

    def test_types(self) -> None:
        """Values must have the right type: an unquoted number is no token."""
        self.assertIn("token must be a string", self.with_user("token: 12345"))
        self.assertIn(
            "insecure-skip-tls-verify must be a boolean",
            self.with_cluster("server: 'https://a', insecure-skip-tls-verify: 'yes'"),
        )

    def test_namespace(self) -> None:
        """A namespace that no path can have is an error of its context."""
        context = CONTEXT.replace("user: u", "namespace: default/")
        self.assertEqual(
            self.refusal(CLUSTER + context),
            'FILE: context "x": namespace "default/" is no name: may not contain \'/\'',
        )

    def test_dangling_names(self) -> None:
        """The error for an undefined cluster or user names the context."""
        self.assertEqual(
            self.refusal("a: b"), "FILE: it has no contexts; choose a kubeconfig that has some"
        )
        contexts = CONTEXT.partition("current-context")[0]
        self.assertEqual(
            self.refusal(contexts),
            "FILE: no current-context is set; choose one with --context; there are: x",
        )
        self.assertEqual(self.refusal(CLUSTER, "y"), 'FILE: no context "y"')
        self.assertEqual(self.refusal(CLUSTER + CONTEXT, "y"), 'FILE: no context "y"; there are: x')
        self.assertEqual(self.refusal(CONTEXT), 'FILE: no cluster "c" (of context "x")')
        self.assertEqual(self.refusal(CLUSTER + CONTEXT), 'FILE: no user "u" (of context "x")')
        others = CLUSTER.replace("name: c", "name: d") + CONTEXT
        self.assertEqual(
            self.refusal(others), 'FILE: no cluster "c" (of context "x"); there are: d'
        )

    def test_controls(self) -> None:
        """Control characters in names are removed from the error."""
        message = self.refusal('current-context: "a\\n\\e[2Jb"')
        self.assertEqual(message, 'FILE: no context "a  [2Jb"')

    def test_two_documents(self) -> None:
        """The first document counts, as in kubectl; the second need not even be YAML."""
        user = "users: [{name: u, user: {token: t}}]\n"
        for second in ("---\ncurrent-context: y\n", "---\n[", "...\n---\n!!int x\n"):
            path = self.write(f"---\n{CLUSTER}{CONTEXT}{user}{second}")
            self.assertEqual(load(path).token, "t")
            inline = (self.directory / "config").read_bytes()
            self.assertEqual(load_inline(inline, "secret a/b", environ={}).token, "t")

    def test_repeated(self) -> None:
        """A key that is there twice is refused with its line."""
        self.assertIn(
            "FILE: line 2: the key 'kind' is there", self.refusal("kind: Config\nkind: Config")
        )

    def test_not_yaml(self) -> None:
        """The error for invalid YAML or a wrong structure names its place."""
        self.assertRegex(self.refusal("a: [b"), "FILE: not YAML: line [12], column")
        self.assertIn("FILE: line 1: the alias *x is not", self.refusal("a: &x [*x]"))
        self.assertIn("FILE: line 1: the tag ", self.refusal("a: !!python/object:os.system"))
        self.assertIn("FILE: nested more than 64 levels deep", self.refusal("[" * 5000))
        self.assertIn("a mapping is expected", self.refusal("- a"))
        self.assertIn("its kind is Secret", self.refusal("kind: Secret"))
        self.assertIn("clusters must be a list", self.refusal(CONTEXT + "clusters: {a: b}"))
        self.assertIn("contexts[0] has no name", self.refusal("contexts: [3]", "x"))

    def test_too_large(self) -> None:
        """A file larger than 4 MiB is refused."""
        path = self.write("")
        os.truncate(path, (4 << 20) + 1)
        with self.assertRaises(KubeConfigError) as caught:
            load(path)
        self.assertEqual(str(caught.exception), f"{path}: larger than 4 MiB")


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of a document."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [here] + [path for key, part in items for path in _paths(part, (*here, key))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copied


WHOLE = {
    "kind": "Config",
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://api:6443",
                "certificate-authority-data": "QUJD",
                "insecure-skip-tls-verify": False,
                "tls-server-name": "api",
                "proxy-url": "http://p:1",
                "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {}}],
            },
        }
    ],
    "users": [
        {
            "name": "u",
            "user": {
                "client-certificate-data": "QUJD",
                "client-key-data": "QUJD",
                "token": "t",
                "tokenFile": "",
                "as": "a",
                "as-uid": "b",
                "as-groups": ["c"],
                "as-user-extra": {"d": ["e"]},
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Never",
                    "args": ["a"],
                    "env": [{"name": "N", "value": "v"}],
                    "provideClusterInfo": True,
                    "installHint": "x",
                },
            },
        }
    ],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
    "current-context": "x",
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


class InlineTests(KubeconfigTestCase):
    """Tests for :func:`load_inline`: kubeconfigs held as data."""

    def inline(self, user: str, cluster: str = "server: 'https://api:6443'") -> ClientConfig:
        content = (
            f"clusters: [{{name: c, cluster: {{{cluster}}}}}]\n{CONTEXT}"
            f"users: [{{name: u, user: {{{user}}}}}]\n"
        )
        return load_inline(content.encode(), "secret a/b", environ={})

    def inline_refusal(self, user: str, **more: str) -> str:
        with self.assertRaises(KubeConfigError) as caught:
            self.inline(user, **more)
        return str(caught.exception)

    def test_data(self) -> None:
        """Certificates, tokens, server name and proxy work as in a file."""
        pem = base64.b64encode(b"PEM").decode()
        found = self.inline(
            f"client-certificate-data: {pem}, client-key-data: {pem}",
            f"server: 'https://api:6443', certificate-authority-data: {pem}, tls-server-name: n, "
            "proxy-url: 'socks5://proxy:1080'",
        )
        self.assertEqual((found.ca.data, found.certificate.data, found.key.data), (b"PEM",) * 3)
        self.assertEqual((found.tls_server_name, found.proxy_url), ("n", "socks5://proxy:1080"))
        self.assertEqual(self.inline("token: t").token, "t")
        self.assertEqual(found.source, 'secret a/b (context "x")')

    def test_proxy_of_the_environment(self) -> None:
        """The environment's proxy applies to inline kubeconfigs, too."""
        content = CLUSTER + CONTEXT + "users: [{name: u, user: {token: t}}]"
        found = load_inline(content.encode(), "it", environ={"HTTPS_PROXY": "http://proxy:3128"})
        self.assertEqual(found.proxy_url, "http://proxy:3128")

    def test_leading_outside(self) -> None:
        """Keys that would open a file or run a program are refused, with an alternative."""
        path = self.write("token")
        for user, told in (
            (f"tokenFile: {path}", "tokenFile is not taken from here; use token"),
            (
                f"client-certificate: {path}, client-key: {path}",
                "client-certificate is not taken from here; use client-certificate-data",
            ),
            (
                f"exec: {{command: {path}, apiVersion: client.authentication.k8s.io/v1}}",
                "exec is not taken from here; use a token or a certificate",
            ),
            (
                "auth-provider: {name: gcp}",
                "auth-provider is not taken from here; use a token or a certificate",
            ),
        ):
            self.assertEqual(self.inline_refusal(user), f'secret a/b: user "u": {told}')
        ca = f"server: 'https://api:6443', certificate-authority: {path}"
        self.assertEqual(
            self.inline_refusal("token: t", cluster=ca),
            'secret a/b: cluster "c": certificate-authority is not taken from here; '
            "use certificate-authority-data",
        )

    def test_no_kubeconfig(self) -> None:
        """An empty, truncated, foreign or oversized kubeconfig fails with one line."""
        for content, told in (
            (b"", "the kubeconfig is empty"),
            (b"clusters: [{name: c", "not YAML: line "),
            (b"[]", "not a kubeconfig: a mapping is expected"),
            (b"\xff\xfe\x00", "not YAML"),
            (CONTEXT.encode(), 'no cluster "c" (of context "x")'),
            (CLUSTER.encode(), "it has no contexts"),
            (b" " * (5 << 20), f"the kubeconfig is larger than {MAX_INLINE_BYTES >> 10} KiB"),
        ):
            with self.assertRaises(KubeConfigError) as caught:
                load_inline(content, "secret a/b")
            self.assertIn(f"secret a/b: {told}", str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


class DamagedTests(KubeconfigTestCase):
    """Damaged files."""

    @settings(max_examples=200, deadline=None, database=None)
    @given(path=st.sampled_from(_paths(WHOLE)), new=JSON)
    def test_any_part(self, path: tuple[Any, ...], new: Any) -> None:
        """With any value in any place, the result is a configuration or a one-line error."""
        name = self.write(json.dumps(_replaced(WHOLE, path, new)))
        try:
            config = load(name)
        except KubeConfigError as refused:
            self.assertNotIn("\n", str(refused))
        else:
            self.assertTrue(config.server.startswith("http"))
            self.assertIsInstance(config.namespace, str)
