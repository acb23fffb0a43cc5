"""The REPL's parts as the program has them: settings, key, and how a session is opened."""

import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial

import msgspec

from supervisor.harmless import harmless
from supervisor.options import New, ReplOptions, Start
from supervisor.permits import trust
from supervisor.permits.asking import Asker
from supervisor.places import current_directory
from supervisor.screen.port import Parts, Prepared, Tell
from supervisor.settings import Flags, Settings, load, read_key
from supervisor.wiring import open_parts


@contextmanager
def wired(options: ReplOptions) -> Iterator[Prepared]:
    """The parts for these options.  Raises StopError for settings that can't be used."""
    flags = Flags(
        model=options.model,
        base_url=options.base_url,
        workspace=options.workspace,
        sandbox=options.sandbox,
        allow=options.allow,
    )
    loaded = load(flags, os.environ, current_directory())
    settings, key = loaded.settings, read_key(loaded.settings, os.environ)
    if options.rehearsal:
        # A script has no use for the user's key, so it isn't sent there.
        settings, key = msgspec.structs.replace(settings, rehearsal=True), None
    yield Prepared(
        open=partial(_open, settings, key, options.start),
        open_new=partial(_open, settings, key, New()),
        harmless=harmless,
        show=settings.show_tool_results,
        look=partial(trust.look, options.workspace, os.environ, current_directory()),
        notices=loaded.notices,
    )


def _open(
    settings: Settings, key: str | None, start: Start, tell: Tell, asker: Asker
) -> AbstractAsyncContextManager[Parts]:
    return open_parts(settings, key, start, tell, asker)
