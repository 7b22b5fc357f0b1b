"""
The Nodes of the root that stand for leaves: plan, worker, controller, addresses, conditions,
probes.
"""
