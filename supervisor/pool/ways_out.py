"""One worker's ways out of its sandbox: the proxy of its network, and connections that its tools ask for.

What may be reached is in its policy; who decides and connects is in supervisor/network.
"""

import contextlib
import os
import socket
from collections.abc import Callable

import trio
from msgspec.structs import replace

from protocol import wire
from protocol.policy import Network, SandboxPolicy
from protocol.wire import Denial, ToolFinished
from supervisor.network.dial import DialFailedError, DialRefusedError, dial
from supervisor.network.hosts import Hosts
from supervisor.network.proxy import serve_proxy
from supervisor.network.relay import relay
from supervisor.pool.channel import Channel, ChannelBrokenError, ChannelClosedError

_DIALS_PER_CALL = 16
"""A page and its redirects need six."""
_DIALLED_BYTES = 256 * 1024 * 1024
_DIALLED_SECONDS = 120.0
"""Of one connection that a tool has asked for: what it reads is cut far below this."""
_NAME_BYTES = 64


class WaysOut:
    """`denied` hears what the proxy refuses."""

    def __init__(
        self,
        channel: Channel,
        descriptors: socket.socket,
        policy: SandboxPolicy,
        denied: Callable[[Denial], None],
    ) -> None:
        """Raises HostError for what is no entry of a list."""
        self._channel = channel
        self._descriptors = descriptors
        self._own_network = policy.network is not Network.ON
        self._hosts = Hosts(policy.hosts, everything=policy.network is Network.ON)
        listed = policy.hosts if policy.network is Network.LISTED else ()
        self._hosts_of_commands = Hosts(listed)
        self._denied = denied
        self._proxied = False
        self._dials: dict[str, int] = {}
        """Call id -> connections so far."""
        self._nursery: trio.Nursery | None = None

    def begin(self, nursery: trio.Nursery) -> None:
        """Connections live in this nursery, which ends with the worker."""
        self._nursery = nursery

    def listens(self) -> None:
        """The worker has made the door of its network.  Raises ChannelBrokenError where that is none."""
        if self._proxied or not self._own_network:
            raise ChannelBrokenError("it told of a proxy that nobody wants")
        self._proxied = True
        listener = self._received()
        if self._nursery is None:
            listener.close()
        else:
            self._nursery.start_soon(serve_proxy, listener, self._hosts_of_commands, self._denied)

    def _received(self) -> socket.socket:
        try:
            name, fds, _, _ = socket.recv_fds(
                self._descriptors, _NAME_BYTES, 1, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise ChannelBrokenError(f"it told of a proxy, but sent none: {error}") from error
        if not fds:
            raise ChannelBrokenError("it told of a proxy, but sent none")
        try:
            listener = socket.socket(fileno=fds[0])
        except OSError as error:
            os.close(fds[0])
            raise ChannelBrokenError(
                f"it sent something else than the door of its network: {error}"
            ) from error
        if name != wire.PROXY.encode() or not _is_door(listener):
            listener.close()
            raise ChannelBrokenError("it sent something else than the door of its network")
        return listener

    def dial(self, asked: wire.Dial, *, known: bool) -> None:
        """Answered when there is a connection, or none can be had.  `known`: the call runs."""
        count = self._dials.get(asked.call_id, 0)
        if not known or count >= _DIALS_PER_CALL or self._nursery is None:
            self._post(wire.DialRefused(asked.call_id, "this call can have no more connections"))
        else:
            self._dials[asked.call_id] = count + 1
            self._nursery.start_soon(self._give, asked)

    def forget(self, call_id: str) -> None:
        self._dials.pop(call_id, None)

    async def _give(self, asked: wire.Dial) -> None:
        try:
            stream = await dial(self._hosts, asked.host, asked.port)
        except DialRefusedError as error:
            self._post(
                wire.DialRefused(asked.call_id, f"the sandbox refuses {error.denial.what}", error.denial)
            )
        except DialFailedError as error:
            self._post(wire.DialRefused(asked.call_id, str(error)))
        else:
            async with stream:
                await self._pass_on(asked.call_id, stream)

    async def _pass_on(self, call_id: str, stream: trio.SocketStream) -> None:
        """The worker gets one end of a pair and never the connection: on that it could connect elsewhere."""
        ours, theirs = trio.socket.socketpair()
        async with trio.SocketStream(ours) as end:
            with theirs:
                try:
                    # Before the message that announces it, so that it is there when the message is read.
                    socket.send_fds(self._descriptors, [call_id.encode()], [theirs.fileno()])
                except OSError as error:
                    self._post(wire.DialRefused(call_id, str(error)))
                    return
            self._post(wire.Dialled(call_id))
            with trio.move_on_after(_DIALLED_SECONDS):
                await relay(end, stream, _DIALLED_BYTES)

    def _post(self, message: wire.Dialled | wire.DialRefused) -> None:
        with contextlib.suppress(ChannelClosedError):  # whoever reads its wire notices
            self._channel.post(message)


def with_denials(finished: ToolFinished, denials: tuple[Denial, ...]) -> ToolFinished:
    """The result with what the proxy refused meanwhile, in words for the model too: what a program prints of
    it need not name the host.  It is sure, so it stands for what the worker has guessed."""
    named = {denial.permission for denial in denials}
    guessed = tuple(one for one in finished.denials if one.sure or one.permission not in named)
    told = [one for one in denials if one not in guessed]
    if not told:
        return finished
    lines = [
        f"[sandbox: blocked {one.what}: it is not on the list of hosts"
        + (f'; ask with needs=["{one.permission}"]]' if one.permission else "]")
        for one in told
        if one.permission is None or str(one.permission) not in finished.text
    ]
    return replace(finished, text="\n".join([finished.text, *lines]), denials=(*told, *guessed))


def _is_door(listener: socket.socket) -> bool:
    return (
        listener.family is socket.AF_INET
        and listener.type is socket.SOCK_STREAM
        and bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    )
