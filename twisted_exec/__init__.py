"""
twisted-exec: the serial console of any machine, through one Kubernetes-style
API server.

The doors that other Twisted applications use are gathered in
:mod:`twisted_exec.interfaces`.
"""

__version__ = "0.1.0"
