"""Which hosts and ports may be reached: a list that the user's grants make longer.  Pure.

Not here: whether the address behind a name may be reached (dial.py).
"""

from collections.abc import Iterable, Iterator

from protocol.host import HostError, is_address, joined, normal, parted

_BELOW = "*."


class Hosts:
    """Entries are HOST:PORT; `*.HOST:PORT` means every name below HOST, and not HOST itself.

    `everything`: the network is on, and there is nothing to check.
    """

    def __init__(self, entries: Iterable[str] = (), *, everything: bool = False) -> None:
        self.everything = everything
        self._entries: dict[str, None] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: str) -> None:
        """Raises HostError."""
        below = _BELOW if entry.startswith(_BELOW) else ""
        host, port = parted(entry.removeprefix(below))
        if below and is_address(host):
            raise HostError(f"{entry!r}: an address has no names below it")
        self._entries[below + joined(host, port)] = None

    def discard(self, entry: str) -> None:
        """Take an entry back that was added in these or other words for the same.  Raises HostError."""
        below = _BELOW if entry.startswith(_BELOW) else ""
        self._entries.pop(below + joined(*parted(entry.removeprefix(below))), None)

    def allows(self, host: str, port: int) -> bool:
        """Whatever the host's spelling; what is no host is not allowed."""
        try:
            name = normal(host)
        except HostError:
            return False
        if self.everything or joined(name, port) in self._entries:
            return True
        if is_address(name):
            return False
        labels = name.split(".")
        return any(
            _BELOW + joined(".".join(labels[at:]), port) in self._entries for at in range(1, len(labels))
        )

    def __contains__(self, entry: str) -> bool:
        """Whether all that an entry stands for is allowed.  Raises HostError."""
        if entry.startswith(_BELOW):
            host, port = parted(entry.removeprefix(_BELOW))
            return self.allows(f"any.{host}", port)
        return self.allows(*parted(entry))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
