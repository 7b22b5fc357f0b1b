"""
A user signs in with an identity provider: kubectl, a credential plugin, a console.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor

from tests import needs
from tests.auth.provider import Provider
from tests.kube.plugins import V1, PluginScript
from tests.standalone.test_tap_program import StandaloneCase
from tests.tiers import PROGRAMS
from tests.tls.support import write

from . import kubectls, programs

reactor: Any = _reactor

CONFIG = """
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {url}
    audiences: [twisted-exec]
    certificateAuthority: {ca}
  claimMappings:
    username: {{claim: email, prefix: ""}}
    groups: {{claim: groups, prefix: "oidc:"}}
"""
BINDING = """
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operators, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:operators"}]
"""
CANARY = "canary-0123456789"
ATTACH = ("attach", "-it", "demo-shell")


class SignInTests(StandaloneCase):
    """``exec-standalone`` with an AuthenticationConfiguration, and a real kubectl."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def test_sign_in(self) -> None:
        """
        kubectl signs in with a token from a plugin, and a role of its group allows a console; no
        log contains the token.
        """
        provider = Provider()
        await provider.listen(reactor, self.mktemp())
        self.addCleanup(provider.stop)
        text = CONFIG.format(url=provider.url, ca=json.dumps(provider.ca_pem.decode()))
        path = write(self.directory, "auth.yaml", text.encode())
        tokens = write(self.directory, "tokens.csv", f"{CANARY},joe,2\n".encode())
        program = await self.ready("--authentication-config", path, "--token-auth-file", tokens)
        token = self.token(provider, groups=["operators"])
        env = {"KUBECONFIG": self.signed_in(token), "HOME": self.directory}
        kubectl = list(kubectls.found().values())[-1]

        code, out, told = await kubectls.run(kubectl, "auth", "whoami", "-o", "json", env=env)
        self.assertEqual(code, 0, told)
        info = json.loads(out)["status"]["userInfo"]
        self.assertEqual(info["username"], "ada@example.org")
        self.assertEqual(info["groups"], ["oidc:operators", "system:authenticated"])

        code, _, told = await kubectls.run(kubectl, *ATTACH, env=env)
        self.assertEqual(code, 1)
        self.assertIn("forbidden", told)
        admin = {"KUBECONFIG": self.kubeconfig, "HOME": self.directory}
        apply = ("apply", "-f", "-")
        code, _, told = await kubectls.run(kubectl, *apply, env=admin, stdin=BINDING.encode())
        self.assertEqual(code, 0, told)

        screen = programs.terminal([kubectl, *ATTACH], **env)
        self.addCleanup(screen.stop)
        screen.type(b"echo a$((40+2))a\n")
        await screen.until(rb"a42a")

        self.signed_in(self.token(provider, email_verified=False))
        code, _, told = await kubectls.run(kubectl, "get", "pods", env=env)
        self.assertEqual(code, 1)
        self.assertIn("You must be logged in", told)
        await program.until(rb"a token of https://localhost:\d+ is refused: its email is not")
        for shown in (CANARY, f"{CANARY}-wrong"):
            env["KUBECONFIG"] = self.kubeconfig_of({"token": shown})
            code, _, told = await kubectls.run(kubectl, "get", "pods", env=env)
            self.assertEqual(code, 1, told)
        self.in_no_log(program.output, CANARY, *token.split("."))

    def in_no_log(self, output: bytes, *secrets: str) -> None:
        """
        Neither the output of the three programs nor their files contain the secrets or a URL with a
        one-time token.
        """
        written = [path for path in Path(self.state).rglob("*") if path.is_file()]
        for told in (output, *(path.read_bytes() for path in written)):
            for secret in secrets:
                self.assertNotIn(secret.encode(), told)
        self.assertNotRegex(output, re.compile(rb"(?i)bearer \S|/(exec|log)/[\w-]{30}"))

    def token(self, provider: Provider, **claims: Any) -> str:
        told = {"aud": "twisted-exec", "sub": "1", "email": "ada@example.org"}
        return provider.token(**told, exp=time.time() + 3600, **claims).decode()

    def signed_in(self, token: str) -> str:
        """A kubeconfig whose plugin returns this token."""
        plugin = PluginScript(Path(self.directory) / "plugin", f"answer(token={token!r})")
        run = {"apiVersion": V1, "command": plugin.path, "interactiveMode": "Never"}
        return self.kubeconfig_of({"exec": run})

    def kubeconfig_of(self, shown: dict[str, Any]) -> str:
        """A kubeconfig with these user credentials and no certificate."""
        document = yaml.safe_load(Path(self.kubeconfig).read_text())
        for user in document["users"]:
            user["user"] = shown
        path = os.path.join(self.directory, "ada.kubeconfig")
        Path(path).write_text(yaml.safe_dump(document))
        return path
