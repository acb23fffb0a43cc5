"""A connection that a call reads and writes, plain or TLS: it notices a cancel and the end of its time.

It gets a connected socket and makes none.  What goes over it: exchange.py.
"""

import io
import os
import select
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from worker.web.tries import TryError

T = TypeVar("T")

_TICK = 0.1
"""Seconds after which a cancel is noticed."""
AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, others
)
"""Where systems keep the certificates that they trust."""


class Line(io.RawIOBase):
    """Takes over `sock`.  `go_on` is called while it waits, and raises where the call is to end."""

    def __init__(self, sock: socket.socket, go_on: Callable[[], None]) -> None:
        super().__init__()
        sock.setblocking(False)
        self._sock = sock
        self._go_on = go_on

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from now on, with this host and no other.  Raises TryError."""
        try:
            wrapped = context.wrap_socket(self._sock, server_hostname=host, do_handshake_on_connect=False)
            self._sock = wrapped
            self._patiently(wrapped.do_handshake)
        except ssl.SSLCertVerificationError as error:
            raise TryError(f"the certificate of {host} is not accepted: {error.verify_message}") from error
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TryError(f"no TLS with {host}: {_words(error)}") from error

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                sent = self._patiently(lambda part=view: self._sock.send(part))  # type: ignore[misc]
            except OSError as error:
                raise TryError(f"the connection broke: {_words(error)}") from error
            view = view[sent:]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        try:
            return self._patiently(lambda: self._sock.recv_into(buffer))  # type: ignore[arg-type]
        except ssl.SSLEOFError:
            return 0  # servers that don't say good-bye are common; lengths tell whether all has come
        except OSError as error:
            raise TryError(f"the connection broke: {_words(error)}") from error

    def makefile(self, mode: str) -> io.BufferedReader:
        """As http.client asks a socket for it."""
        return io.BufferedReader(self)

    def close(self) -> None:
        super().close()
        self._sock.close()

    def _patiently(self, attempt: Callable[[], T]) -> T:
        while True:
            self._go_on()
            try:
                return attempt()
            except (BlockingIOError, ssl.SSLWantReadError):
                select.select([self._sock], [], [], _TICK)
            except ssl.SSLWantWriteError:
                select.select([], [self._sock], [], _TICK)


def trust(chosen: str = "") -> ssl.SSLContext:
    """What verifies servers: `chosen` (a file of certificates) or the system's.  Raises TryError."""
    places = [chosen] if chosen else [place for place in AUTHORITIES if os.access(place, os.R_OK)]
    try:
        context = ssl.create_default_context(cafile=places[0] if places else None)
    except OSError as error:
        raise TryError(f"the certificates in {places[0]} can't be read: {_words(error)}") from error
    if not context.cert_store_stats()["x509_ca"] and not chosen:
        context.load_default_certs()
    if not context.cert_store_stats()["x509"]:
        raise TryError(
            "there are no certificates to verify a server with; install the package ca-certificates, or name "
            "a file of them in SSL_CERT_FILE"
        )
    return context


def _words(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
