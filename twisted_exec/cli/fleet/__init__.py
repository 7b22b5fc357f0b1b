"""
``kubectl console -l SELECTOR``: the consoles of many machines in one terminal.

The console of one machine is to open fast, and imports nothing of this package.  So the options of
a fleet are in :mod:`twisted_exec.cli.console.options`.
"""
