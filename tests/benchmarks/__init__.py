"""
How fast, beside peers, in one run on one machine.

``python -m tests.benchmarks`` prints ratios and asserts nothing: machines
differ, ratios hold.
"""
