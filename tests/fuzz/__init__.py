"""
Bytes that nobody would send, into everything that reads what a peer sent.

:mod:`.targets` says what must hold for any bytes at all: only the errors that blame the
peer, the same events on any split, nothing kept beyond its bound.  It is used twice:

* ``test_targets.py`` feeds it seeds and hypothesis' ideas, in every run of the tests;
* ``python -m tests.fuzz`` (``tox -e fuzz``) lets atheris look for new paths through the
  code for a minute.  What it finds becomes a seed, and a failing test where it belongs.
"""
