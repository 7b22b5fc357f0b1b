"""
``kubectl console -l SELECTOR``: the consoles of many machines in one terminal.

Only this package's ``options`` module is imported before the command line is known to name many
machines, because the console of one machine is to open fast.
"""
