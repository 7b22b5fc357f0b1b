"""
The page's ``terminal/roles.js`` and :class:`twisted_exec.console.floor.RoleNotices` read the same notices.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.console.test_floor import Person
from twisted_exec.console.floor import ANNOUNCE_SECONDS, Floor, RoleNotices, notice_text
from twisted_exec.streaming.interfaces import Role
from twisted_exec.web.static import DIRECTORY

_READ = """
import { Roles } from %s;
const roles = new Roles();
const states = JSON.parse(process.argv[1]).map((text) => {
    roles.read(text);
    const { isObserver, isDenied, writer } = roles;
    return [isObserver, isDenied, writer ?? "nobody"];
});
console.log(JSON.stringify(states));
"""


class NoticesTests(SynchronousTestCase):
    """A floor with several people."""

    skip = needs.node()

    def test_roles(self) -> None:
        """After each notice of the floor, the page and the command line know the same role and writer."""
        for person in self.people():
            texts = [notice_text(each) for each in person.notices]
            self.assertTrue(all(texts), person.notices)
            notices = RoleNotices()
            expected = []
            for text in texts:
                notices.read(text)
                expected.append([notices.is_observer, notices.is_denied, notices.writer])
            self.assertEqual(self.read(texts), expected, texts)

    def people(self) -> list[Person]:
        """Return people who have got each kind of notice."""
        clock = Clock()
        floor = Floor(clock)
        ada, bob = Person("ada"), Person("bob")
        again, weak = Person("ada"), Person("carol", may_take_over=False)
        denied = Person("dan", denied=True)
        everybody = [ada, bob, again, weak, denied]
        for person in everybody:
            floor.join(person)
            floor.remind(person)
            person.tell(floor.refusal(person))
        for person in (bob, ada, again, weak, denied):
            floor.request_role(person, Role.WRITER)
        again.is_away = True
        floor.follow_presence()
        again.is_away = False
        floor.follow_presence()
        again.may_write, again.is_denied = False, True
        floor.right_to_write_changed(again)
        clock.advance(ANNOUNCE_SECONDS)
        again.may_write, again.is_denied = True, False
        floor.right_to_write_changed(again)
        floor.request_role(weak, Role.WRITER)
        floor.request_role(weak, Role.OBSERVER)
        floor.request_role(bob, Role.WRITER)
        floor.leave(bob)
        return everybody

    def read(self, texts: list[str]) -> Any:
        """Return what the page knows after each notice."""
        module = json.dumps((DIRECTORY / "terminal" / "roles.js").as_uri())
        result = subprocess.run(
            ["node", "--input-type=module", "-e", _READ % module, json.dumps(texts)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)
