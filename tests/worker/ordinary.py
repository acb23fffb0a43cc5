"""Run something as a user whom the mode of files binds: root isn't bound, so root's tests fork for it."""

import os
import traceback
from collections.abc import Callable

_NOBODY = 65534


def as_ordinary_user(work: Callable[[], str], *, apart: bool = False) -> str:
    """What `work` returns, by whoever runs the tests, or in a fork as nobody where that is root.

    `apart`: always in a fork, for what a process can't take back.
    """
    is_root = os.geteuid() == 0
    if not (is_root or apart):
        return work()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if is_root:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
            os.write(writing, work().encode())
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the parent gets to read it
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, told
    return told
