"""Sphinx configuration: plain reStructuredText, no network, no warnings."""

import configparser
from pathlib import Path

_setup = configparser.ConfigParser()
_setup.read(Path(__file__).parent.parent / "setup.cfg")

project = "twisted-exec"
author = "The twisted-exec contributors"
copyright = "2026, the twisted-exec contributors"
release = _setup["metadata"]["version"]
extensions: list[str] = []
exclude_patterns = ["_build", "newsfragments"]
html_theme = "alabaster"
html_theme_options = {"description": "The serial console of any machine", "page_width": "64rem"}
nitpicky = True
highlight_language = "console"
