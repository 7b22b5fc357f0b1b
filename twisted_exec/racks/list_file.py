"""The file that this program writes, and the runtime reads: ``lines_from``."""

from __future__ import annotations

import os
from collections.abc import Sequence

from twisted_exec.program.config_file import MAX_FILE_BYTES, ConfigError
from twisted_exec.program.server_list import Server, format_csv, read_servers


class ListFile:
    """
    A list in a file, which is replaced as a whole.

    All methods use the disk: call them in a thread.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Sequence[Server]:
        """
        Return the rows.

        :raises ConfigError: the file cannot be used, or has rows that cannot: nobody knows what they stood for.
        """
        if not os.path.exists(self.path):
            return ()
        with open(self.path, "rb") as file:
            if file.read(len(_EMPTY) + 1) == _EMPTY:
                return ()
        servers = read_servers(self.path)
        for _, problem in servers.refused:
            raise ConfigError(problem)
        return servers.servers

    def write(self, rows: Sequence[Server]) -> None:
        """
        Replace the file.

        :raises ConfigError: the runtime would not read so large a file.
        :raises OSError: the disk refuses it.
        """
        content = format_csv(rows)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError(
                f"{self.path} would be larger than {MAX_FILE_BYTES >> 20} MiB; divide the Servers with "
                "--server-selector"
            )
        temporary = f"{self.path}.new"
        with open(temporary, "wb") as file:
            os.fchmod(
                file.fileno(), 0o644
            )  # the runtime may have another user; a list has no secrets
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


_EMPTY = format_csv(())
