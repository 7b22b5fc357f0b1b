"""
The page's ``terminal/roles.js`` and :class:`twisted_exec.console.notices.RoleNotices` read the same notices.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.console.test_floor import people_with_notices
from tests.tiers import PROGRAMS
from twisted_exec.console.notices import HINT, RoleNotices
from twisted_exec.web.static import DIRECTORY
from twisted_exec.wire.marks import Notice

_LIKE_NOTICES = (
    "you are the writer of this console",
    "you have taken over this console from x",
    "what you type is not sent: x",
    f"x; you are an observer {HINT}",
    "the writer of this console is x",
    f"x has left; this console has no writer {HINT}",
    "x, in another session,",
    "x has taken over this console; you are an observer",
)

_READ = """
import { readFileSync } from "node:fs";
import { Roles } from %s;
const sessions = JSON.parse(readFileSync(0)).map((marks) => {
    const roles = new Roles();
    return marks.map((mark) => {
        roles.read(mark);
        const { isObserver, isDenied, writer } = roles;
        return [isObserver, isDenied, writer ?? "nobody"];
    });
});
console.log(JSON.stringify(sessions));
"""


class NoticesTests(SynchronousTestCase):
    """A floor with several people."""

    starts = PROGRAMS
    skip = needs.node()

    def test_roles(self) -> None:
        """After each notice of the floor, the page and the command line know the same role and writer."""
        self.check([person.notices for person in people_with_notices()])

    def test_names(self) -> None:
        """Both read the same of notices with names that read like notices."""
        names = (HINT, *_LIKE_NOTICES)
        people = [
            person
            for name in names
            for person in (*people_with_notices(ada=name), *people_with_notices(bob=name))
        ]
        self.check([person.notices for person in people])

    def check(self, sessions: list[list[Notice]]) -> None:
        """Compare what both know."""
        expected = []
        for notices in sessions:
            known, states = RoleNotices(), []
            for notice in notices:
                known.read(notice)
                states.append([known.is_observer, known.is_denied, known.writer])
            expected.append(states)
        found = self.read([[each.members for each in notices] for notices in sessions])
        for notices, states, page in zip(sessions, expected, found, strict=True):
            self.assertEqual(page, states, notices)

    def read(self, sessions: list[list[dict[str, str]]]) -> Any:
        """Return what the page knows after each notice of each session."""
        module = json.dumps((DIRECTORY / "terminal" / "roles.js").as_uri())
        result = subprocess.run(
            ["node", "--input-type=module", "-e", _READ % module],
            input=json.dumps(sessions),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)
