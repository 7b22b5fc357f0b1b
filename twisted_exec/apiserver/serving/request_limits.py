"""
Limits on the number of concurrent requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from twisted_exec.api.status import TooManyRequests
from twisted_exec.auth.interfaces import User


class RequestLimits:
    """
    Limits on concurrent requests.

    Short requests are counted apart from watches.

    :param terms: of the selectors of all watches.
    """

    def __init__(
        self,
        short: int = 400,
        long: int = 4000,
        long_per_user: int = 1000,
        short_per_user: int = 200,
        terms: int = 80_000,
        terms_per_user: int = 20_000,
    ) -> None:
        self._short, self._long, self._long_per_user = short, long, long_per_user
        self._short_per_user = short_per_user
        self._terms, self._terms_per_user = terms, terms_per_user
        self._terms_now: Counter[str] = Counter()
        self._short_now: Counter[str] = Counter()
        self._long_now: Counter[str] = Counter()

    @contextmanager
    def short(self, user: User) -> Iterator[None]:
        """
        Count a short request while it is answered.

        :raises TooManyRequests: too many are being answered.
        """
        mine = self._short_now[user.name]
        if self._short_now.total() >= self._short:
            raise TooManyRequests("Too many requests, please try again later.")
        if mine >= self._short_per_user:
            raise TooManyRequests(
                f'Too many requests: user "{user.name}" has {mine} at once, please try again later.'
            )
        with _counted(self._short_now, user):
            yield

    @contextmanager
    def long(self, user: User, terms: int = 0) -> Iterator[None]:
        """
        Count a watch while it runs.

        :raises TooManyRequests: too many run, or they have too many terms.
        """
        mine = self._long_now[user.name]
        if mine >= self._long_per_user or self._long_now.total() >= self._long:
            limit = f"{self._long_per_user} of one user and {self._long} of all are the limit"
            raise TooManyRequests(
                f'Too many watches: user "{user.name}" has {mine}, {limit}: end others, or try again later.',
                retry_after_seconds=10,
            )
        left = min(
            self._terms_per_user - self._terms_now[user.name],
            self._terms - self._terms_now.total(),
        )
        if terms > left:
            raise TooManyRequests(
                f"Too many terms in the selectors of watches: this one has {terms}, and user "
                f'"{user.name}" has {left} left. Select by fewer terms, or end other watches.',
                retry_after_seconds=10,
            )
        with _counted(self._long_now, user), _counted(self._terms_now, user, terms):
            yield


@contextmanager
def _counted(now: Counter[str], user: User, count: int = 1) -> Iterator[None]:
    now[user.name] += count
    try:
        yield
    finally:
        now[user.name] -= count
        if not now[user.name]:
            del now[user.name]
