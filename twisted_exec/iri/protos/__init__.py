"""
Messages of the machine runtime interface, generated from the ``.proto`` files beside them.

They implement the public interface of ironcore's runtimes: packages, services, methods and field numbers are
the same, so that either side may be another implementation.
``console.proto`` is an additional service of this project, which is optional.
``onmetal.proto``, ``onmetal01.proto`` and ``spheric.proto`` are the messages of other
revisions of the interface.  The first two have the same package and service as ``machine.proto``, but
names must be unique in a process's descriptor pool.  So they are generated under other
names, which are never sent, and :mod:`twisted_exec.iri.revisions` sets each method's path.
(Separate pools would keep the names, but do not work with generated code.)
Regenerate from the root of the repository with the *oldest* generator that the declared
protobuf (>= 6.30) accepts, because generated code refuses runtimes older than its
generator::

    pip install grpcio-tools==1.72.1
    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \\
        twisted_exec/iri/protos/{meta,event,machine,console,onmetal,onmetal01,spheric}.proto

No service stubs are generated: client and server take the methods from the descriptor.
A test compares what is committed with the ``.proto`` files.
"""
