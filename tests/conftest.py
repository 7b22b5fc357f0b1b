"""
Under pytest as under trial: tests run in a scratch directory of their own, so
that ``mktemp`` leaves nothing in the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def scratch_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trial does this by itself, with ``_trial_temp``."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("scratch"))
    yield
    os.chdir(before)
