"""What is cut of a worker's words, and that nothing of a well one's is lost."""

from protocol.display import Display
from protocol.wire import Status, ToolFinished
from supervisor.pool.bounds import BLOCK, LINE, bounded

CAP = 1000


def test_a_result_of_a_well_worker_passes_as_it_is() -> None:
    shown = Display("exit 0", "first\n… 98 lines …\nlast", "@@ -1 +1 @@", "a.txt", lines=100)
    finished = ToolFinished("a", Status.DONE, "text", shown, ("j1 pid 1 sleep",), ("a.txt",))
    assert bounded(finished, CAP) == finished


def test_what_is_too_long_for_the_screen_is_cut_and_the_rest_stays() -> None:
    shown = Display("s" * 2 * LINE, "p" * 2 * BLOCK, "d" * 2 * BLOCK, "f" * 2 * LINE, lines=7)
    cut = bounded(ToolFinished("a", Status.DONE, "text", shown), CAP).display
    assert cut == Display("s" * LINE, "p" * BLOCK, "d" * BLOCK, "f" * LINE, lines=7)
