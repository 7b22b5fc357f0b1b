"""
Tests for :mod:`twisted_exec.api.agents`: names that mean one agent, and one person.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.agents import (
    PERSON_GROUPS,
    PERSON_UID,
    agent_name,
    is_agent,
    is_person,
    label_problem,
    person_behind,
    person_of,
    person_problem,
    person_uid,
    reserved_problem,
)
from twisted_exec.api.users import User


class NameTests(SynchronousTestCase):
    """Names of agents, and of people that look like these."""

    def test_person(self) -> None:
        """The person is what comes before the last colon, whatever colons the person's name has."""
        for person in ("ada", "oidc:ada", "https://id.example.org#a:b", "a:", ":", "agents"):
            name = agent_name(person, "bot")
            self.assertTrue(is_agent(name))
            self.assertEqual(person_of(name), person)

    def test_no_agent(self) -> None:
        """A user who is no agent is their own person."""
        for name in ("ada", "agent", "Agent:ada:bot", " agent:ada:bot", "oidc:agent:ada:bot"):
            self.assertFalse(is_agent(name))
            self.assertEqual(person_of(name), name)

    def test_malformed(self) -> None:
        """A name without a label is that of an agent of nobody."""
        for name in ("agent:", "agent:ada", "agent::bot"):
            self.assertTrue(is_agent(name))
            self.assertEqual(person_of(name), "")

    def test_label(self) -> None:
        """A label has no colon, so that the person's name cannot be moved into it."""
        for label in ("bot", "b", "bot-2", "a" * 32):
            self.assertEqual(label_problem(label), "")
        for label in ("", "a:b", "Bot", "-a", "a-", "a" * 33, "bot\n", "b\u00f6t", "a.b"):
            self.assertIn("lower-case letters", label_problem(label))

    def test_people(self) -> None:
        """Neither agents nor ServiceAccounts nor unknown users are people."""
        self.assertTrue(is_person("ada"))
        for name in (
            "agent:ada:bot",
            "agent:",
            "system:serviceaccount:a:b",
            "",
            "system:anonymous",
        ):
            self.assertFalse(is_person(name))


class UserTests(SynchronousTestCase):
    """Users, and those for whom they act."""

    def test_behind(self) -> None:
        """The person has the groups and the UID that the agent carries."""
        extra = {PERSON_GROUPS: ("ops",), PERSON_UID: ("7",)}
        agent = User("agent:ada:bot", ("agents", "system:authenticated"), extra=extra)
        person = User("ada", ("ops", "system:authenticated"), "7")
        self.assertEqual(person_behind(agent), person)
        self.assertEqual((person_uid(agent), person_uid(person)), ("7", "7"))
        forged = User("ada", (), "1", extra)  # an extra makes nobody an agent
        self.assertEqual(person_uid(forged), "1")

    def test_who_has_agents(self) -> None:
        """Only people who act as themselves have agents."""
        self.assertEqual(person_problem(User("ada")), "")
        for name in (
            "agent:ada:bot",
            "system:serviceaccount:a:b",
            "system:node:n",
            "system:anonymous",
            "",
        ):
            self.assertNotEqual(person_problem(User(name)), "", name)
        impersonated = User("ada", impersonated_by=User("eve"))
        self.assertIn("impersonated", person_problem(impersonated))

    def test_reserved(self) -> None:
        """A name and the group of agents are reserved, and those that resemble them are not."""
        self.assertIn("names that begin with", reserved_problem(User("agent:ada:bot")))
        self.assertIn("names that begin with", reserved_problem(User("agent:")))
        self.assertIn("give your groups a prefix", reserved_problem(User("ada", ("agents",))))
        self.assertEqual(reserved_problem(User("agents", ("agent:ada:bot", "Agents"))), "")
