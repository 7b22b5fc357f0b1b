"""The files in ``docs/deploy`` fit the programs."""
