"""
A layer for devices that ask for a user and a password before their console, such as many BMCs.
"""

from twisted_exec.interfaces import CannotStart
from twisted_exec.machines import LineLayer


class Login(LineLayer):
    """
    One connection: logs in, then begins the console at the prompt ``>``.

    :param path: file with the password.
    """

    def __init__(self, upper, user, path):
        super().__init__(upper)
        self.user, self.path = user, path
        self.printed = b""

    def connectionMade(self):  # that of LineLayer would begin the console now
        try:
            with open(self.path, "rb") as file:
                password = file.read().rstrip(b"\r\n")
        except OSError as error:
            self.fail(CannotStart("NoPassword", f"{self.path}: {error.strerror}"))
            return
        self.steps = [(b"login: ", self.user), (b"Password: ", password), (b"> ", b"")]
        super().write(b"\r")  # until begin(), only this class writes

    def dataReceived(self, data):
        if not self.steps:
            self.deliver(data)
            return
        self.printed = (self.printed + data)[-4096:]  # a device may print without end
        if b"incorrect" in self.printed:
            self.fail(CannotStart("LoginRefused", "the device refuses the user or the password"))
            return
        while self.steps and self.steps[0][0] in self.printed:
            prompt, answer = self.steps.pop(0)
            self.printed = self.printed.partition(prompt)[2]
            if self.steps:
                super().write(answer + b"\r")
        if not self.steps:
            self.begin()
            self.deliver(b"> " + self.printed)
