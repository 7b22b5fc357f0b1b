"""
What the clients that people already have make of us, tried with the real ones.

A table: one row for each client, one column for each thing that is done with a
machine.  A cell is tried by a process of that client against ``exec-standalone``
and a shell in a pseudo-terminal of its own; what a client cannot do by its nature
is said with the reason, not tried.

* :mod:`.table` is the table, as it is found and as the documentation has it.
* :mod:`.place` is what a row is tried on.
* :mod:`.kubectl` and :mod:`twisted_exec.cli.commands.completion` are the clients; the programs that use a
  library are in ``python``, ``javascript``, ``rust``, ``java`` and ``browser``.
* :mod:`.matrix` tries all of them: ``python -m tests.clients.matrix`` writes
  ``docs/reference/clients.rst``.
"""
