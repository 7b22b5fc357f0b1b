"""
A program that uses paramiko, as its documentation shows: ``python paramiko_client.py CONFIG HOST [WORD ...]``.

``ProxyCommand`` and the host key are those of the configuration for ssh.  Without words it is a terminal for its own
terminal, ``forward`` opens a forwarded connection, and other words are a command, whose exit code it has.
"""

from __future__ import annotations

import os
import sys
import termios
import threading
import tty

import paramiko


def main(path: str, host: str, *words: str) -> int:
    config = paramiko.SSHConfig.from_path(path).lookup(host)
    proxy = paramiko.ProxyCommand(config["proxycommand"])
    transport = paramiko.Transport(proxy)
    transport.start_client(timeout=600)
    keys = paramiko.HostKeys(config["userknownhostsfile"].strip('"'))
    if not keys.check(config["hostkeyalias"], transport.get_remote_server_key()):
        raise SystemExit("it has another host key")
    transport.auth_none("ada")
    return use(transport, *words)


def use(transport: paramiko.Transport, *words: str) -> int:
    """Do what the words say, and close the connection."""
    try:
        if words == ("forward",):
            transport.open_channel("direct-tcpip", ("10.0.0.1", 22), ("127.0.0.1", 1))
            return 0
        return session(transport.open_session(), " ".join(words))
    except paramiko.ChannelException as refused:
        print(refused.text, file=sys.stderr)
        return 1
    finally:
        transport.close()


def session(channel: paramiko.Channel, command: str) -> int:
    if reason := os.environ.get("EXEC_REASON"):
        channel.set_environment_variable("EXEC_REASON", reason)
    if command:
        channel.exec_command(command)
    else:
        size = os.get_terminal_size(0)
        tty.setraw(0, termios.TCSANOW)
        channel.get_pty("xterm", size.columns, size.lines)
        channel.invoke_shell()
        threading.Thread(target=keys, args=[channel], daemon=True).start()
    errors = threading.Thread(target=copy, args=[channel.recv_stderr, 2])
    errors.start()
    copy(channel.recv, 1)
    errors.join()
    return channel.recv_exit_status()


def copy(receive, descriptor: int) -> None:
    while data := receive(1 << 15):
        os.write(descriptor, data)


def keys(channel: paramiko.Channel) -> None:
    while data := os.read(0, 1024):
        channel.sendall(data)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
