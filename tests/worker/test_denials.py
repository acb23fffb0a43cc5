"""Commands that fail, in the real sandbox: what of it is the sandbox's doing, and what would allow it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from protocol.policy import Rung
from protocol.wire import ToolFinished
from supervisor.pool.workers import Pool
from supervisor.pool.zygote import Launch
from tests.supervisor.pool_play import CHECKOUT, Site


@dataclass(frozen=True)
class Row:
    """`wanted`: words of the permission that the result names; none where the sandbox is not the reason, or
    nothing would allow it.  `needs`: the program without which the row means nothing."""

    command: str
    wanted: str = ""
    needs: str = "bash"
    rungs: tuple[Rung, ...] = (Rung.FULL, Rung.LANDLOCK)
    ordinary: bool = False
    """For root the modes of files are no obstacle, so the sandbox is the reason after all."""


FULL, LANDLOCK = (Rung.FULL,), (Rung.LANDLOCK,)

WRITES = (
    Row("echo x > $ELSE/new", "write:$ELSE"),
    Row("echo x >> $ELSE/notes", "write:$ELSE", rungs=FULL),  # of what isn't there a grant would be nothing
    Row("echo x >> $ELSE/notes", "write:$ELSE/notes", rungs=LANDLOCK),
    Row("touch $ELSE/new", "write:$ELSE"),
    Row("mkdir $ELSE/d", "write:$ELSE"),
    Row("mkdir -p $ELSE/d/e", "write:$ELSE", rungs=LANDLOCK),
    Row("cp kept $ELSE/copy", "write:$ELSE"),
    Row("mv kept $ELSE/moved; mv $ELSE/moved .", "write:$ELSE", rungs=LANDLOCK),
    Row("rm $ELSE/notes", "write:$ELSE/notes", rungs=LANDLOCK),
    Row("ln -s kept $ELSE/link", "write:$ELSE"),
    Row("echo x | tee $ELSE/notes", "write:$ELSE/notes", rungs=LANDLOCK),
    Row("dd if=/dev/zero of=$ELSE/notes count=1", "write:$ELSE/notes", rungs=LANDLOCK),
    Row("truncate -s 0 $ELSE/notes", "write:$ELSE/notes", rungs=LANDLOCK),
    Row("sed -i s/x/y/ /etc/hosts", "write:/etc"),
    Row("echo x >> /etc/hosts", "write:/etc/hosts"),
    Row("""python3 -c "open('$ELSE/notes', 'w')" """, "write:$ELSE/notes", "python3", LANDLOCK),
    Row("""python3 -c "open('/etc/hosts', 'a')" """, "write:/etc/hosts", "python3"),
    Row("""python3 -c "import os; os.mkdir('/usr/x')" """, "write:/usr", "python3"),
    Row("""node -e "require('fs').writeFileSync('/etc/x', '')" """, "write:/etc", "node"),
    Row("install -m 644 kept /usr/local/bin/kept", "write:/usr/local/bin"),
    Row("tar -xf a.tar -C /usr/local", "write:/usr/local/kept"),
    Row("gcc -o /usr/local/bin/m m.c", "write:/usr/local/bin", "gcc"),
    Row("make -C . put", "write:/usr/local/bin", "make"),
)
READS = (
    Row("cat $ELSE/notes", "read:$ELSE/notes"),
    Row("ls $ELSE", "read:$ELSE"),
    Row("grep -r x $ELSE", "read:$ELSE"),
    Row("cp $ELSE/notes .", "read:$ELSE/notes"),
    Row("wc -l < $ELSE/notes", "read:$ELSE/notes"),
    Row("""python3 -c "print(open('$ELSE/notes').read())" """, "read:$ELSE/notes", "python3"),
    Row("""node -e "require('fs').readFileSync('$ELSE/notes')" """, "read:$ELSE/notes", "node"),
    Row("diff kept $ELSE/notes", "read:$ELSE/notes"),
    Row("head -1 $SHUT/id_rsa", "read:$SHUT/id_rsa"),
    Row("source $ELSE/notes", "read:$ELSE/notes"),
    Row("tar -cf b.tar $ELSE/notes", "read:$ELSE/notes"),
    Row("cat /etc/shadow", "read:/etc/shadow", rungs=LANDLOCK),
    Row("find $ELSE -name notes", "read:$ELSE"),
)
GIT = (
    Row("git add kept", "git-write", "git", FULL),
    Row("git commit --allow-empty -m x", "git-write", "git", FULL),
    Row("git config user.name x", "git-write", "git", FULL),
    Row("git checkout -b other", "git-write", "git", FULL),
    Row("git commit --allow-empty -m x; git status", "git-write", "git", FULL),
    Row("echo x > .git/hooks/post-commit", "git-write", "git", FULL),
    Row("rm -r .git", "git-write", "git", FULL),
)
NETWORK = (
    Row("curl -sS https://example.org/a", "network:example.org:443", "curl"),
    Row("curl -sS http://example.org:8080/a", "network:example.org:8080", "curl"),
    Row("wget -q -O- https://example.org; wget https://example.org", "network:example.org:443", "wget"),
    Row("git clone https://example.org/a.git", "network:example.org:443", "git"),
    Row("git clone git@example.org:a/b.git", "network:example.org:22", "ssh"),
    Row("ssh -o BatchMode=yes -p 22 example.org true", "network:example.org:22", "ssh"),
    Row(
        """python3 -c "import urllib.request as u; u.urlopen('https://example.org')" """,
        "network:example.org:443", "python3",
    ),
    Row(
        """python3 -c "import socket; socket.create_connection(('example.org', 443), 2)" """,
        "network:", "python3", LANDLOCK,
    ),
    Row("""node -e "fetch('https://example.org')" """, "network:example.org:443", "node"),
    Row("python3 -m pip install -q --target t polier-none", "network:pypi.org:443", "pip"),
    Row("npm view left-pad", "network:registry.npmjs.org:443", "npm"),
    Row("echo 'Could not resolve host: example.org'; exit 6", "network:example.org:443"),
)  # fmt: skip
WALLS = (
    Row("unshare -rn true", "unconfined", "unshare"),
    Row("mount -t tmpfs none kept.d", "unconfined", "mount"),
    Row("sysctl -w kernel.hostname=x", "unconfined", "sysctl", LANDLOCK),
)
ORDINARY = (
    Row("false"),
    Row("cat missing"),
    Row("cat $ELSE/notes; true"),
    Row("echo x > /etc/x; true"),
    Row("echo \"fatal: Unable to create '/other/.git/index.lock': Read-only file system\""),
    Row("ls /usr/share/missing"),
    Row("cat /missing"),
    Row("test -f nothing"),
    Row("grep nothing kept"),
    Row("./kept"),
    Row("echo 'a: Permission denied'; exit 1"),
    Row("echo 'Operation not permitted'; exit 1"),
    Row("echo 'error: could not compile'; exit 101"),
    Row("nosuchprogram"),
    Row("/usr/share/nothing/run"),
    Row("""python3 -c "raise PermissionError(13, 'Permission denied', 'kept')" """, needs="python3"),
    Row("""python3 -c "import nothing" """, needs="python3"),
    Row("diff kept m.c", needs="gcc"),
    Row("cd nowhere"),
    Row("rmdir kept.d/full"),
    Row("git log nobranch", needs="git"),
    Row("cat /tmp/missing-here"),
    Row("ls -l $HOME/none"),
    Row("curl -sS http://127.0.0.1:9/", needs="curl", rungs=FULL),
    Row("""python3 -c "assert 1 == 2, 'read-only file system'" """, needs="python3"),
)
ROWS = (*WRITES, *READS, *GIT, *NETWORK, *WALLS, *ORDINARY)


REAL = Launch(roots=(str(CHECKOUT),), measure=os.environ.get("POLIER_MEASURE", ""))


class Tried:
    """A sandbox that runs rows."""

    def __init__(self, site: Site, pool: Pool, rung: Rung, private: Path) -> None:
        self.site, self.pool, self.rung = site, pool, rung
        self.elsewhere, self.shut = private / "elsewhere", private / "home/.ssh"

    def worded(self, text: str) -> str:
        return text.replace("$ELSE", str(self.elsewhere)).replace("$SHUT", str(self.shut))

    async def run(self, row: Row) -> ToolFinished:
        return await self.site.play(self.pool, self.worded(row.command))


@pytest.fixture(params=[(), ("native", "bubblewrap")], ids=["what is had here", "without namespaces"])
async def tried(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tried]:
    # Not below /tmp, of which commands have their own.
    private = Path(tempfile.mkdtemp(prefix="polier-test-", dir=Path.home()))
    home = private / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("secret\n")
    site = Site(
        tmp_path,
        environ={
            "HOME": str(home),
            "PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        },
    )
    (private / "elsewhere").mkdir()
    (private / "elsewhere/notes").write_text("x\n")
    furnish(site.workspace)
    async with site.pool(launch=replace(REAL, without=request.param)) as pool:
        rung = (await pool.ready()).rung
        if rung is Rung.OFF:
            shutil.rmtree(private)
            pytest.skip("nothing is confined here")
        yield Tried(site, pool, rung, private)
    shutil.rmtree(private)


def furnish(workspace: Path) -> None:
    (workspace / "kept").write_text("kept\n")
    (workspace / "m.c").write_text("int main(void) { return 0; }\n")
    (workspace / "Makefile").write_text("put:\n\tcp kept /usr/local/bin/kept\n")
    (workspace / "kept.d/full").mkdir(parents=True)
    (workspace / "kept.d/full/x").write_text("")
    shutil.make_archive(str(workspace / "a"), "tar", workspace, "kept")
    if shutil.which("git"):
        subprocess.run(["git", "init", "-q", str(workspace)], check=True)


@pytest.mark.slow
async def test_a_denial_is_named_and_an_ordinary_failure_is_not(tried: Tried) -> None:
    hits, misses, false = 0, [], []
    for row in ROWS:
        if shutil.which(row.needs) is None or tried.rung not in row.rungs:
            continue
        begun = trio.current_time()
        result = await tried.run(row)
        assert trio.current_time() - begun < 15, row.command
        named = [str(denial.permission or "") for denial in result.denials]
        wanted = tried.worded(row.wanted)
        told = (row.command, wanted, named, result.text[-600:])
        if not wanted:
            false += [told] if named else []
        elif any(name.startswith(wanted) if wanted.endswith(":") else name == wanted for name in named):
            hits += 1
            # By a line of ours, or by the proxy, which says so to the program.
            assert "[sandbox: " in result.text or wanted in result.text
        else:
            misses.append(told)
    for told in (*misses, *false):
        print(*told, sep="\n    ")
    print(f"{tried.rung.value}: {hits} hits, {len(misses)} missed, {len(false)} false")
    assert not false
    assert len(misses) <= 2
