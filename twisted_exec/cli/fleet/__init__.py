"""
``kubectl console -l SELECTOR``: the consoles of many machines in one terminal.

Nothing of this package is imported before the command line is known to name many machines, because
the console of one machine is to open fast.  So the options of a fleet are in
:mod:`twisted_exec.cli.console.options`.
"""
