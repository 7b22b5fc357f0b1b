"""
Under pytest as under trial: tests run in a scratch directory of their own, so
that ``mktemp`` leaves nothing in the checkout.

``--differing`` runs only the tests whose result can differ from that under trial, after all are collected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

DIFFERING = (
    # They look for objects with gc, and pytest keeps those of tests that have ended.
    "apiserver/consoles/test_retained_texts_logs.py",
    "apiserver/serving/watches/test_watches.py",
    "kube/test_client.py",
    "program/test_garbage.py",
    "runtimes/serving/test_kept_sessions.py",
    "runtimes/serving/test_server.py",
    "streaming/http/test_responses.py",
    "streaming/http/test_websocket.py",
    "streaming/proxy/test_passing.py",
    "streaming/test_chain.py",
    "streaming/text/test_connection.py",
    "streaming/text/test_resumption.py",
    # They pass descriptors on or fork, and pytest captures output by descriptors of its own.
    "flows/test_forks.py",
    "program/test_descriptors.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--differing",
        action="store_true",
        help="run only tests whose result can differ from that under trial",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--differing"):
        here = os.path.dirname(__file__)
        chosen = {os.path.join(here, name) for name in DIFFERING}
        config.hook.pytest_deselected(
            items=[item for item in items if str(item.path) not in chosen]
        )
        items[:] = [item for item in items if str(item.path) in chosen]


@pytest.fixture(autouse=True, scope="session")
def scratch_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trial does this by itself, with ``_trial_temp``."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("scratch"))
    yield
    os.chdir(before)
