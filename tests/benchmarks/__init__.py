"""
Benchmarks against peers, in the same run on the same machine.

``python -m tests.benchmarks`` prints ratios and asserts nothing: ratios are
comparable between machines, absolute times are not.
"""
