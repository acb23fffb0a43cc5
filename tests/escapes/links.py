"""Links in the workspace, and what the file tools make of them."""

from collections.abc import Awaitable, Callable

from protocol.wire import Status, ToolFinished
from tests.escapes.decoys import Decoys

Call = Callable[[str, dict[str, object]], Awaitable[ToolFinished]]

_EDIT = [{"old": "sesame", "new": "x"}]
_TOOLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("read_file", {}),
    ("write_file", {"content": "x\n"}),
    ("edit_file", {"edits": _EDIT}),
    ("search", {"pattern": "sesame"}),
)
_SWAPS = 100
"""Times that each tool runs into the other's way; half of them meet a link."""

NAMES = (
    "a link to an outside file leads no file tool out",
    "a link to an outside directory leads no file tool out",
    "a link to an outside path that doesn't exist leads no file tool out",
    "a link to credentials leads no file tool out",
    "a shell follows no link out",
    "links that stay inside work",
    "a file that is swapped for a link all the time leads no file tool out",
)


async def play_links(call: Call, decoys: Decoys) -> dict[str, str]:
    """By name, what was wrong; empty where nothing was."""
    workspace, outside = decoys.workspace, decoys.elsewhere
    targets = {
        NAMES[0]: ("to-file", "to-file", outside / "victim.txt"),
        NAMES[1]: ("to-directory", "to-directory/victim.txt", outside),
        NAMES[2]: ("to-nothing", "to-nothing", outside / "not-there"),
        NAMES[3]: ("to-keys", "to-keys/id_ed25519", decoys.home / ".ssh"),
    }
    told: dict[str, str] = {}
    for name, (link, path, target) in targets.items():
        (workspace / link).symlink_to(target)
        told[name] = await _refused(call, decoys, path, str(target))
    script = decoys.variables() + "".join(
        f"echo x >> {path}; cat {path}; rm -f {path}/victim.txt; sed -i s/e/x/ {path};"
        for _, path, _ in targets.values()
        if "/" in path or path != "to-nothing"
    )
    ran = await call("run_command", {"command": script})
    told[NAMES[4]] = ", ".join(decoys.changes()) or (
        "the secret was read" if decoys.secret in ran.text else ""
    )
    decoys.fresh()
    decoys.workspace_tree.restore()
    told[NAMES[5]] = await _inside(call, decoys)
    decoys.workspace_tree.restore()
    told[NAMES[6]] = await _swapped(call, decoys)
    decoys.fresh()
    decoys.workspace_tree.restore()
    return told


async def _refused(call: Call, decoys: Decoys, path: str, real: str) -> str:
    wrong = []
    for tool, arguments in _TOOLS:
        done = await call(tool, {"path": path} | arguments)
        if done.status not in (Status.REFUSED, Status.FAILED) or decoys.secret in done.text:
            wrong.append(f"{tool} was let: {done.text[:200]}")
        elif tool != "search" and done.status is not Status.REFUSED:
            wrong.append(f"{tool} failed, but was not refused: {done.text[:200]}")
        elif real not in done.text:
            wrong.append(f"{tool} does not name {real}: {done.text[:200]}")
    return "; ".join(wrong + decoys.changes())


async def _swapped(call: Call, decoys: Decoys) -> str:
    script = (
        "echo inside > file; ln -s $ELSEWHERE/victim.txt link; mkdir real; echo inside > real/victim.txt;"
        " ln -s $ELSEWHERE way; while :; do cp -P file new; mv -T new swap; cp -P link new; mv -T new swap;"
        " mv real place; mv place real; mv way place; mv place way; done"
    )
    command = {"command": decoys.variables() + script, "background": True}
    job = (await call("run_command", command)).background[0].split()[0].rstrip(":")
    wrong = []
    for _ in range(_SWAPS):
        for path in ("swap", "place/victim.txt"):
            if decoys.secret in (await call("read_file", {"path": path})).text:
                wrong.append(f"{path} was read outside")
            await call("write_file", {"path": path, "content": "written\n"})
    await call("jobs", {"action": "stop", "id": job})
    return "; ".join(wrong + decoys.changes())


async def _inside(call: Call, decoys: Decoys) -> str:
    workspace = decoys.workspace
    (workspace / "near").symlink_to("source.py")
    (workspace / "far").symlink_to(workspace / "source.py")
    wrong = []
    for path in ("near", "far"):
        done = await call("read_file", {"path": path})
        if done.status is not Status.DONE or "hello" not in done.text:
            wrong.append(f"{path} can't be read: {done.text[:200]}")
    done = await call("edit_file", {"path": "near", "edits": [{"old": "hello", "new": "bye"}]})
    if "bye" not in (workspace / "source.py").read_text() or not (workspace / "near").is_symlink():
        wrong.append(f"a link inside can't be edited through: {done.text[:200]}")
    return "; ".join(wrong)
