"""
Benchmarks against peers, in the same run on the same machine.

``python -m tests.benchmarks`` prints ratios and asserts nothing: ratios are
comparable between machines, absolute times are not.

Openings need no pause after a start.  A start changes permissions, and only a session that was being
opened during the change is reviewed when it opens.
"""
