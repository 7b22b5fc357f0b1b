"""
The alert rules and the dashboard of ``docs/deploy``, with a real Prometheus.

It scrapes an ``exec-standalone`` with a session for :data:`SECONDS`: the API server and the poollet directly, the
runtime through nginx, with the configuration in ``docs/deploy``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests import needs
from tests.docs import pages
from tests.docs.deploy.files import DEPLOY
from tests.docs.deploy.monitoring import CONFIG, RULES, Query, queries_of_panels, queries_of_rules
from tests.flows import kubectls, programs
from tests.flows.deployment import POOL, Deployment
from tests.standalone.test_tap_program import StandaloneCase
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import APIError
from twisted_exec.kube.console_endpoint import ConsoleEndpoint
from twisted_exec.runtimes.serving.server import STREAM_SOCKET
from twisted_exec.tls.private_directories import runtime_directory

reactor: Any = _reactor

SECONDS = 45
"""A runtime pings its users every 30 s."""

QUEUE_METRICS = (
    "workqueue_depth",
    "workqueue_queue_duration_seconds_count",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
)

_ABSENT = re.compile("twisted_exec_(shipping|space|leaf|host|recording_store)_")
"""Metrics of programs, and of settings, that a plain ``exec-standalone`` does not have."""


def missing(*names: str) -> str | None:
    """Why the tests cannot run here, or ``None``."""
    lacking = [name for name in names if shutil.which(name) is None]
    return f"not on PATH: {', '.join(lacking)}" if lacking else None


class RuleTests(TestCase):
    """The alert rules by themselves."""

    skip = missing("promtool")

    async def promtool(self, *words: str) -> None:
        output, errors, code = await getProcessOutputAndValue(
            shutil.which("promtool") or "promtool", words
        )
        self.assertEqual(code, 0, (output + errors).decode())

    async def test_rules(self) -> None:
        """promtool accepts the rules."""
        await self.promtool("check", "rules", str(RULES))

    async def test_alerts(self) -> None:
        """Each alert fires when it should, with its text, and not before."""
        await self.promtool("test", "rules", str(Path(__file__).with_name("alerts_test.yaml")))


class Typist(Protocol):
    """A user who types a key each half a second."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self._typing = LoopingCall(self.transport.write, b"x")
        self._typing.start(0.5)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._typing.stop()


class PrometheusCase(TestCase):
    """
    A Prometheus.

    :ivar directory: of its files.
    """

    directory: str

    async def start_prometheus(self, config: dict[str, Any]) -> int:
        """Start it with a configuration, and short intervals; return its port when it answers."""
        port = unused_port()
        path = Path(self.directory, "prometheus.yml")
        intervals = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "5s"}
        path.write_text(yaml.safe_dump({**config, "global": intervals, "rule_files": [str(RULES)]}))
        program = programs.start(
            [
                shutil.which("prometheus") or "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={self.directory}/prometheus",
                f"--web.listen-address=127.0.0.1:{port}",
            ]
        )
        self.addCleanup(program.stop)
        ready = ["curl", "-sf", f"http://127.0.0.1:{port}/-/ready"]
        while (await deferToThread(subprocess.run, ready, capture_output=True)).returncode:
            await deferLater(reactor, 0.1)
        return port

    async def ask(self, port: int, path: str, **query: str) -> dict[str, Any]:
        """Return the data of an answer of Prometheus; fail if it refuses the query."""
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urlencode(query)}"
        answer = await deferToThread(
            subprocess.run, ["curl", "-s", url], check=True, capture_output=True
        )
        document = json.loads(answer.stdout)
        self.assertEqual(document["status"], "success", (query, document))
        data: dict[str, Any] = document["data"]
        return data


class PagesTests(PrometheusCase):
    """Programs that were set up by the pages, and the Prometheus file of ``docs/deploy``."""

    skip = missing("prometheus") or needs.kubectl()
    timeout = 240

    async def test_scraped(self) -> None:
        """Prometheus scrapes an API server, a poollet and a runtime with TLS, by its certificate."""
        self.directory = os.path.abspath(self.mktemp())
        place = Deployment(self.directory)
        self.addCleanup(place.stop)
        await place.start_api()
        words = ("apply", "-f", str(DEPLOY.parent / "howto" / "metrics-reader.yaml"))
        code, _, output = await kubectls.run("kubectl", *words, env={"KUBECONFIG": place.admin})
        self.assertEqual(code, 0, output)
        place.pki.issue_user("prometheus", [])
        runtime = place.reserved.add()
        await place.start_runtime(f"--streaming-listen=tcp:{runtime}:interface=127.0.0.1")
        await place.start_poollet(self.option().replace("/etc/twisted-exec", place.path("pki")))
        status = (await place.client.get(place.dialect.pool, POOL))["status"]
        ports = {
            "api.example.com:6443": place.port,
            "rack-a.example.com:20250": status["daemonEndpoints"]["machinepoolletEndpoint"]["port"],
            "metal-a.example.com:20252": runtime,
        }
        text = CONFIG.read_text(encoding="utf-8").replace("pki/", f"{place.path('pki')}/")
        for address, port in ports.items():
            text = text.replace(address, f"127.0.0.1:{port}")
        config = yaml.safe_load(text)
        jobs = [job for job in config["scrape_configs"] if "scheme" in job]
        port = await self.start_prometheus({**config, "scrape_configs": jobs})
        targets: list[dict[str, Any]] = []
        while len(targets) < len(ports) or any(each["health"] == "unknown" for each in targets):
            await deferLater(reactor, 0.5)
            targets = (await self.ask(port, "targets"))["activeTargets"]
        self.assertEqual([each["lastError"] for each in targets], [""] * len(ports))
        await self.check_queues(port)

    async def check_queues(self, port: int) -> None:
        """
        The queues of controllers have the metrics of client-go, labelled by controller, and no
        others.
        """
        found: dict[str, set[str]] = {}
        for metric in QUEUE_METRICS:
            data = await self.ask(port, "query", query=metric)
            found[metric] = {each["metric"]["name"] for each in data["result"]}
        first, *others = found.values()
        self.assertEqual(others, [first] * len(others), found)
        # Of the API server and of the poollet.
        self.assertLessEqual({"scheduler", "namespaces", "console-sessions"}, first)
        self.assertLessEqual({"pool", "machines", "console-alerts"}, first)
        (names,) = [await self.ask(port, "label/__name__/values")]
        ours = [each for each in names if re.match("twisted_exec_.*(queue|retries)", each)]
        self.assertEqual(ours, [])

    def option(self) -> str:
        """Return the option of poollets that the page names."""
        (option,) = re.findall(
            r"^   (--client-ca-file=\S+)$", pages.page("howto/monitor"), re.MULTILINE
        )
        return str(option)


class PrometheusTests(StandaloneCase, PrometheusCase):
    """A Prometheus that scrapes an ``exec-standalone``."""

    skip = missing("prometheus", "nginx")
    timeout = 300

    async def test_queries(self) -> None:
        """Every query of the dashboard and of the alert rules is valid, and finds its series."""
        await self.ready("--without-spaces")
        await self.type()
        port = await self.start_prometheus({"scrape_configs": await self.jobs()})
        await deferLater(reactor, SECONDS)
        targets = (await self.ask(port, "targets"))["activeTargets"]
        self.assertEqual([each["lastError"] for each in targets], [""] * 3)
        for query in queries_of_panels():
            series = await self.series(port, query.expression)
            if not any(map(_ABSENT.match, query.metrics)):
                self.assertTrue(series, query)
        for query in queries_of_rules():
            await self.series(port, query.expression)
            await self.check_series(port, query)
        groups = (await self.ask(port, "rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self.assertEqual({rule["health"] for rule in rules}, {"ok"})
        self.assertEqual([rule["name"] for rule in rules if rule["state"] != "inactive"], [])

    async def check_series(self, port: int, query: Query) -> None:
        """Check that the metrics of an alert rule have series."""
        for name in query.metrics:
            if not _ABSENT.match(name):
                self.assertTrue(await self.series(port, name), name)

    async def type(self) -> None:
        """Open a console and type, after another one was refused."""
        missing = ConsoleEndpoint(self.config(), "default", "missing", reactor)
        await self.assertFailure(connectProtocol(missing, Typist()), APIError)
        endpoint = ConsoleEndpoint(self.config(), "default", "demo-shell", reactor)
        typist = await connectProtocol(endpoint, Typist())
        self.addCleanup(typist.transport.loseConnection)

    async def jobs(self) -> list[dict[str, Any]]:
        """Return the configuration of the scrapes."""
        config = self.config()
        client = self.client()
        pool = await client.get(IRONCORE.pool, "local")
        poollet = pool["status"]["daemonEndpoints"]["machinepoolletEndpoint"]["port"]
        user = {"insecure_skip_verify": True}
        for name, material in (("cert_file", config.certificate), ("key_file", config.key)):
            path = Path(self.directory, name)
            path.write_bytes(material.read())
            user[name] = str(path)  # type: ignore[assignment]
        scheme: dict[str, Any] = {"scheme": "https", "tls_config": user}
        ports = {"apiserver": config.url.port, "poollet": poollet, "runtime": self.start_nginx()}
        return [
            {
                "job_name": f"twisted-exec-{name}",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                **(scheme if name != "runtime" else {}),
            }
            for name, port in ports.items()
        ]

    def start_nginx(self) -> int:
        """Start nginx before the runtime's socket; return its port."""
        port = unused_port()
        directory = runtime_directory(os.path.join(self.state, "runtime"))
        socket_path = os.path.join(directory, STREAM_SOCKET)
        text = (DEPLOY / "prometheus" / "runtime-metrics.nginx").read_text(encoding="utf-8")
        text = text.replace("20254", f"127.0.0.1:{port}")
        text = text.replace("/run/exec-runtime/stream.sock", socket_path)
        path = Path(self.directory, "nginx.conf")
        temporary = "".join(
            f"{name}_temp_path {self.directory}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        path.write_text(
            f"daemon off; user root; pid {self.directory}/nginx.pid; error_log stderr; events {{}}\n"
            f"http {{ access_log off; {temporary}\n{text} }}\n"
        )
        program = programs.start([shutil.which("nginx") or "nginx", "-c", str(path)])
        self.addCleanup(program.stop)
        return port

    async def series(self, port: int, expression: str) -> list[Any]:
        """Return the result of a query."""
        text = (
            expression.replace("$job", "twisted-exec-.*")
            .replace("$instance", ".*")
            .replace("$__rate_interval", "30s")
        )
        result: list[Any] = (await self.ask(port, "query", query=text))["result"]
        return result


def unused_port() -> int:
    """Return a port that nobody uses at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
