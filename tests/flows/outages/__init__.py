"""Connections that are lost, programs that are killed, and machines that restart."""
