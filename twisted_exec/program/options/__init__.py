"""Options of programs under twistd: command line, configuration file and help."""
