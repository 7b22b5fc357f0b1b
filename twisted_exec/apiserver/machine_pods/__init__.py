"""
Machines shown as Pods, so that kubectl's Pod commands work on them.
"""
