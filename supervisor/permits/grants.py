"""What has been granted: by `--allow`, for this session, for this project; and what that covers.

A project's grants lie in the state directory, where no tool gets at them:

    projects/<key of the project>/grants.json   [{"permission": "write:/x", "time": ..., "command": ...}]
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from protocol.permission import Kind, Permission, PermissionWordError, parse
from supervisor.exits import StopError
from supervisor.permits.asking import Decider, Scope


class Granted(Struct, frozen=True):
    """One grant for a project: when it was given, and for which command."""

    permission: str
    time: str
    command: str


class ProjectGrants:
    """The file.  What can't be read grants nothing, and `problem` says so."""

    def __init__(self, home: Path, project: str) -> None:
        self._path = home / "projects" / project / "grants.json"
        self.problem = ""

    def all(self) -> tuple[Granted, ...]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[Granted, ...])
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            self.problem = f"{self._path}: can't be read, so nothing that it grants is in force ({error})"
            return ()

    def permissions(self) -> tuple[Permission, ...]:
        found: list[Permission] = []
        for one in self.all():
            with contextlib.suppress(PermissionWordError):  # a later version's word
                found.append(parse(one.permission))
        return tuple(found)

    def add(self, permissions: Collection[Permission], command: str) -> None:
        """Raises StopError where that can't be kept.  A file without sense is put beside the new one."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._alone():
            self.problem = ""
            kept = self.all()
            if self.problem and self._path.read_bytes():
                self._path.rename(self._path.with_name(f"grants-unreadable-{time.time_ns()}.json"))
            known = {one.permission for one in kept}
            new = [str(one) for one in permissions if str(one) not in known]
            self._write((*kept, *(Granted(one, now, command) for one in new)))

    def revoke(self, permission: str) -> bool:
        """Take one back, or with "all" every one; whether there was any.  Raises StopError."""
        with self._alone():
            kept = self.all()
            left = tuple(one for one in kept if permission not in ("all", one.permission))
            if left != kept:
                self._write(left)
        return left != kept

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two sessions of a project don't overwrite each other's grants."""
        directory = self._path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)
        except OSError as error:
            raise StopError(f"{self._path}: can't be written: {error.strerror}") from error

    def _write(self, grants: tuple[Granted, ...]) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=".grants-")  # mode 0600
        try:
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(grants), indent=1) + b"\n")
                file.flush()
                os.fsync(descriptor)
            Path(name).rename(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise


class Grants:
    """All grants that are in force.  `given`: those of `--allow`."""

    def __init__(self, given: Collection[Permission], project: ProjectGrants) -> None:
        self.given = tuple(given)
        self._project = project
        self.granted: list[Permission] = list(project.permissions())

    def covering(self, permission: Permission) -> Decider | None:
        """Who has granted that already."""
        if any(covers(one, permission) for one in self.given):
            return Decider.FLAG
        if any(covers(one, permission) for one in self.granted):
            return Decider.GRANT
        return None

    def standing(self) -> tuple[Permission, ...]:
        """What every command may: all but to run unconfined, which is for a call that asks for it."""
        every = dict.fromkeys((*self.given, *self.granted))
        return tuple(one for one in every if one.kind is not Kind.UNCONFINED)

    def add(self, permissions: Collection[Permission], scope: Scope, command: str) -> None:
        """Raises StopError where a grant for the project can't be kept; then nothing is granted."""
        if scope is Scope.PROJECT:
            self._project.add(permissions, command)
        if scope is not Scope.ONCE:
            self.granted += [one for one in permissions if one not in self.granted]

    def of_project(self) -> tuple[Granted, ...]:
        """What the file says now."""
        return self._project.all()

    def revoke(self, words: Collection[str] | None) -> tuple[str, ...]:
        """Take these back, or all (None), those of `--allow` too; which of them there were.  Raises StopError
        where the project's file can't be written; then all stays as it is."""
        kept = {one.permission for one in self._project.all()}
        there = dict.fromkeys((*map(str, self.given), *map(str, self.granted), *sorted(kept)))
        taken = tuple(one for one in there if words is None or one in words)
        for one in taken:
            if one in kept:
                self._project.revoke(one)
        self.given = tuple(one for one in self.given if str(one) not in taken)
        self.granted = [one for one in self.granted if str(one) not in taken]
        return taken


def covers(grant: Permission, wanted: Permission) -> bool:
    """Whether who has the one may have the other.  Paths are absolute and real."""
    match grant.kind:
        case Kind.UNCONFINED:
            return True
        case Kind.GIT_WRITE:
            return wanted.kind is Kind.GIT_WRITE
        case Kind.READ:
            return wanted.kind is Kind.READ and _within(wanted.target, grant.target)
        case Kind.WRITE:
            return wanted.kind in (Kind.READ, Kind.WRITE) and _within(wanted.target, grant.target)
        case Kind.NETWORK:
            return wanted.kind is Kind.NETWORK and _host_within(wanted.target, grant.target)


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _host_within(wanted: str, granted: str) -> bool:
    if wanted == granted:
        return True
    host, _, port = wanted.rpartition(":")
    above, _, granted_port = granted.rpartition(":")
    return port == granted_port and above.startswith("*.") and host.removeprefix("*").endswith(above[1:])
