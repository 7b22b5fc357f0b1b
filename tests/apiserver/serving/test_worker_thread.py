"""Tests for :mod:`twisted_exec.apiserver.serving.worker_thread`."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from twisted_exec.api.status import BadRequest
from twisted_exec.apiserver.serving.worker_thread import WorkerThread


class ThreadTests(TestCase):
    """The thread."""

    async def test_thread(self) -> None:
        """Functions run in another thread while it is started, and here otherwise."""
        worker, here = WorkerThread(reactor), threading.get_ident()
        self.assertEqual(await worker.execute(threading.get_ident), here)
        worker.startService()
        self.addCleanup(worker.stopService)
        self.assertNotEqual(await worker.execute(threading.get_ident), here)
        self.assertTrue(await worker.execute(lambda: threading.current_thread().daemon))
        with self.assertRaises(ValueError):
            await worker.execute(lambda: int("x"))
        worker.stopService()
        self.assertEqual(await worker.execute(threading.get_ident), here)

    async def test_refused_without_the_collector(self) -> None:
        """A failed call leaves no cycle of error and traceback: that holds the request's body."""
        worker = WorkerThread(reactor)
        worker.startService()
        self.addCleanup(worker.stopService)

        class Body:
            def check(self) -> None:
                try:
                    int("x")
                except ValueError:
                    raise BadRequest("too large") from None

        async def refused() -> weakref.ref[Body]:
            body = Body()
            try:
                await worker.execute(partial(Body.check, body))
            except BadRequest:
                return weakref.ref(body)
            self.fail("accepted")

        gc.disable()
        self.addCleanup(gc.enable)
        body = await refused()
        await worker.execute(int)  # the thread itself refers to its last call
        self.assertIsNone(body())
