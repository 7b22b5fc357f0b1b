"""
The console and log routes of the poollet, and the runtime's endpoints behind them.
"""
