"""Program: API server, poollet and machine runtime in one process."""

PROGRAM = "exec-standalone"
