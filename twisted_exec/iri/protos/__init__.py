"""
Messages of the machine runtime interface, generated from the ``.proto`` files beside them.

They implement the public interface of ironcore's runtimes: packages, services, methods and field
numbers are the same. ``console.proto`` is an additional service of this project, which is optional.
``onmetal.proto``, ``onmetal01.proto`` and ``spheric.proto`` are the messages of other revisions of
the interface. The first two have the same package and service as ``machine.proto``. Names must be
unique in a process, so these are generated under other names, which are never sent.

Regenerate from the root of the repository with the *oldest* generator that the declared protobuf
(>= 6.30) accepts, because generated code refuses runtimes older than its generator::

    pip install grpcio-tools==1.72.1
    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \\
        twisted_exec/iri/protos/{meta,event,machine,console,onmetal,onmetal01,spheric}.proto
"""
