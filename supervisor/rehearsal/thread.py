"""The scripted server in a thread, for programs that are not async themselves."""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import trio

from supervisor.rehearsal.recording import Recorded
from supervisor.rehearsal.script import Script
from supervisor.rehearsal.server import ScriptedServer, serve


class ServerThread:
    """`with ServerThread({"main": script}) as server:` serves until the block ends."""

    def __init__(self, scripts: Mapping[str, Script], *, record: Path | None = None) -> None:
        self._scripts = scripts
        self._record = record
        self._up = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="scripted-server")
        self._server: ScriptedServer | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None

    def __enter__(self) -> "ServerThread":
        self._thread.start()
        self._up.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._stop is not None:
            trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join()

    def url(self, name: str = "main") -> str:
        return self._running.url(name)

    def add(self, name: str, script: Script) -> str:
        """One more conversation; its base URL."""
        return trio.from_thread.run_sync(self._running.add, name, script, trio_token=self._token)

    def requests(self, name: str = "main") -> list[Recorded]:
        return list(self._running.requests(name))

    def left(self, name: str = "main") -> int:
        return self._running.left(name)

    def wait_for(
        self, count: int, name: str = "main", *, ended: bool = False, seconds: float = 20.0
    ) -> list[Recorded]:
        """Until so many requests have come.  Raises TimeoutError."""

        async def waited() -> list[Recorded]:
            with trio.move_on_after(seconds):
                return await self._running.wait_for(count, name, ended=ended)
            raise TimeoutError(f"{len(self._running.requests(name))} of {count} requests in {seconds} s")

        return list(trio.from_thread.run(waited, trio_token=self._token))

    @property
    def _running(self) -> ScriptedServer:
        if self._server is None:
            raise RuntimeError("the server runs only within its `with` block")
        return self._server

    async def _run(self) -> None:
        try:
            async with serve(self._scripts, record=self._record) as server:
                self._server = server
                self._token = trio.lowlevel.current_trio_token()
                self._stop = trio.Event()
                self._up.set()
                await self._stop.wait()
        finally:
            self._up.set()
