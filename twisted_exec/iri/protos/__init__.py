"""
Messages of the machine runtime interface, generated from the ``.proto`` files beside them.

Written after the public interface of ironcore's runtimes: package, service, method
and field numbers are its contract, so that either side may be somebody else's.
``console.proto`` is a service of our own beside it, which others need not have.
``machine02.proto``, ``onmetal.proto``, ``onmetal01.proto`` and ``spheric.proto`` are what other
revisions of the interface have on the wire.  The first three are the same package and service there as ``machine.proto``,
but a process has one descriptor pool, and that has each name once: so they are generated under
names that never travel, and :mod:`twisted_exec.iri.revisions.registry` tells each method's path itself.
(A pool of their own would keep the names, but not as generated code.)
Regenerate from the root of the repository with the *oldest* generator that the declared
protobuf (>= 6.30) accepts, because generated code refuses runtimes older than its
generator::

    pip install grpcio-tools==1.72.1
    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \\
        twisted_exec/iri/protos/{meta,event,machine,console,machine02,onmetal,onmetal01,spheric}.proto

No service stubs are generated: client and server take the methods from the descriptor.
A test compares what is committed with the ``.proto`` files.
"""
