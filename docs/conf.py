"""Sphinx configuration: plain reStructuredText, no network, no warnings."""

import sys
from pathlib import Path

from twisted_exec import __version__

_here = Path(__file__).parent
sys.path.insert(0, str(_here / "_ext"))

project = "twisted-exec"
author = "The twisted-exec contributors"
copyright = "2026, the twisted-exec contributors"
release = __version__
extensions = ["sphinx.ext.autodoc", "sphinx_copybutton", "options_of", "public_api"]
exclude_patterns = ["_build", "newsfragments", "requirements.txt"]
html_theme = "furo"
html_title = f"twisted-exec {release}"
nitpicky = True
# Only what is documented in api/ can be a target; other names in docstrings stay plain text.
nitpick_ignore_regex = [("py:.*", ".*")]
highlight_language = "console"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
# Prompts and output of console blocks are not copied.
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
copybutton_here_doc_delimiter = "EOF"
