"""Ordinary work that no wall may break."""

from tests.escapes.attack import Work, python

_SOCKETS = "localhost"

WORKING = (
    Work(
        "pipes, devices, temporary files, Python and git status work",
        "echo a | cat > /dev/null && f=$(mktemp) && echo x > $f && rm $f"
        " && head -c 9 /dev/urandom > /dev/zero"
        " && cat <(echo x) && \"$PY\" -c 'print(1)' && git status && git diff && git log",
    ),
    Work(
        "files in the workspace are written, moved, linked and deleted",
        "mkdir -p d/e && echo x > d/a && mv d/a d/e/b && ln d/e/b c && ln -s d/e/b s && cat s && rm -r d c s",
    ),
    Work(
        "a server on localhost answers a client",
        python(
            "import socket, threading\nserver = socket.create_server(('127.0.0.1', 0))\n"
            "client = socket.create_connection(server.getsockname())\n"
            "peer, _ = server.accept()\npeer.sendall(b'x')\nassert client.recv(1) == b'x'"
        ),
        noted=_SOCKETS,
    ),
    Work(
        "Python's multiprocessing works",
        # A pool needs semaphores in /dev/shm; a manager listens on a UNIX socket.
        "cat > pool.py <<'END'\nfrom multiprocessing import Manager, Pool\n"
        "if __name__ == '__main__':\n    with Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]\n"
        '    with Manager() as manager: manager.dict()\nEND\n"$PY" pool.py && rm pool.py',
        noted=_SOCKETS,
    ),
    Work(
        "a debugger runs a program",
        "gdb -q -batch -ex run -ex 'info proc' --args /bin/true 2>&1 | tee g && grep -q exited g && rm g",
        needs="gdb",
        loose="debuggers",
    ),
    Work(
        "strace follows a program",
        "strace -f -o t sh -c true && grep -q exited t && rm t",
        needs="strace",
        loose="debuggers",
    ),
    Work(
        "a script is made executable and runs",
        "printf '#!/bin/sh\\nexit 0\\n' > run.sh && chmod +x run.sh && ./run.sh && rm run.sh",
    ),
    Work("node runs", "node -e 'console.log(1)'", needs="node"),
    Work(
        "git commits, stashes and branches where that was granted",
        "echo '# x' >> source.py && git commit -qam second && git log --oneline | grep second"
        " && echo '# y' >> source.py && git stash -q && git stash pop -q"
        " && git switch -q -c other && git gc -q",
        needs="git",
        grants=("git-write",),
    ),
    Work(
        "sources and the Makefile can be edited",
        "echo '# x' >> source.py && echo '# x' >> Makefile && git diff --stat | grep source",
    ),
)
