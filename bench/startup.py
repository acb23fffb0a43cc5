"""P1, P2, P3: how long it takes until something is there.  From an installed wheel, with compiled files."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Sequence

from bench.ground import agent_run, bare_run, environment, installed, play, recorded, serving
from bench.row import Measured

REPEATS = 7
DEADLINE = 30.0
NOWHERE = "http://127.0.0.1:9"
"""No request is made; a named server keeps bare `agent` from playing the rehearsal."""
WHERE, HERE = b"\x1b[6n", b"\x1b[1;1R"
"""A terminal is asked where its cursor is, and answers."""


LEAN_WRAPPER = "import sys; from supervisor.__main__ import main; sys.exit(main())"
"""What pip from 25.1 on and uv put around `main`; older pips import `re` besides, 5 ms."""


def p1_version() -> list[Measured]:
    """The installed `agent --version` against `python -c pass` of the same environment.  The wrapper around
    our `main` is the installer's, so that is shown with a lean one as well."""
    env = environment()
    python = str(installed() / "python")
    bound = play([python, "-c", "pass"], env).wall
    subject = play([str(installed() / "agent"), "--version"], env).wall
    lean = play([python, "-c", LEAN_WRAPPER, "--version"], env).wall
    return [
        ("P1 agent --version", bound * 1e3, subject * 1e3, "ms", "<= 1.3"),
        ("P1 the same behind a wrapper without `re`", bound * 1e3, lean * 1e3, "ms", "<= 1.3"),
    ]


def p2_first_request() -> Measured:
    """From the start of the process to the first byte of its first request, by the server's clock."""
    script = {"steps": [{"text": "Done."}]}
    with serving({"bare": script, "us": script}) as (url, record):
        bare = play(bare_run(f"{url}/bare"), environment())
        us = play(agent_run(f"{url}/us"), environment())
        bound, subject = (
            (int(str(recorded(record, name)[0]["first_byte_ns"])) - ended.started_ns) / 1e6
            for name, ended in (("bare", bare), ("us", us))
        )
    return ("P2 agent run: first request", bound, subject, "ms", "<= 1.5")


def p3_prompt() -> list[Measured]:
    """At a pseudo-terminal, from the start of bare `agent`: until the glyph is there, against a Python
    without `site` that writes it; until a first key is echoed by the editor, against `import prompt_toolkit`.
    """
    env = environment() | {"TERM": "xterm-256color", "AGENT_BASE_URL": NOWHERE}
    python = str(installed() / "python")
    floor = "import os; os.write(1, '❯ '.encode()); os.read(0, 1)"
    (glyph_bound,) = _seen([python, "-I", "-S", "-c", floor], env, ["❯"])
    editor_bound = play([python, "-c", "import prompt_toolkit"], env).wall
    (lean,) = _seen([python, "-c", LEAN_WRAPPER], env, ["❯"])
    glyph, echo = _seen([str(installed() / "agent")], env, ["❯", "You"], key="ö")
    return [
        ("P3 prompt's glyph visible", glyph_bound * 1e3, glyph * 1e3, "ms", "<= 1.5"),
        ("P3 the same behind a wrapper without `re`", glyph_bound * 1e3, lean * 1e3, "ms", "<= 1.5"),
        ("P3 first key echoed", editor_bound * 1e3, echo * 1e3, "ms", "<= 1.3"),
    ]


def _seen(command: Sequence[str], env: dict[str, str], marks: Sequence[str], key: str = "") -> list[float]:
    """Seconds from the start until each mark was on the terminal; after the last one `key` is typed, and its
    echo is what counts for it."""
    master, slave = pty.openpty()
    started = time.monotonic()
    times: list[float] = []
    with subprocess.Popen(
        command, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    ) as child:
        os.close(slave)
        text = ""
        try:
            for number, mark in enumerate(marks):
                text = _read_until(master, mark, text, started)
                if key and number == len(marks) - 1:
                    os.write(master, key.encode())
                    text = _read_until(master, key, "", started)
                times.append(time.monotonic() - started)
        finally:
            child.kill()
            os.close(master)
    return times


def _read_until(master: int, mark: str, text: str, started: float) -> str:
    data = text.encode()
    while mark.encode() not in data:
        left = DEADLINE - (time.monotonic() - started)
        if left <= 0 or not select.select([master], [], [], left)[0]:
            raise TimeoutError(f"{mark!r} did not appear; there is: {data[-200:]!r}")
        read = os.read(master, 65536)
        if WHERE in read:
            os.write(master, HERE)
        data += read
    return data.decode("utf-8", "replace")


ROWS = [p1_version, p2_first_request, p3_prompt]
