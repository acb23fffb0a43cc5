"""The whole list."""

from tests.escapes.inside import INSIDE
from tests.escapes.limiting import BOMBS, SURVIVE
from tests.escapes.meddling import MEDDLING
from tests.escapes.planting import PLANTING
from tests.escapes.reaching import REACHING
from tests.escapes.reading import READING
from tests.escapes.working import WORKING
from tests.escapes.writing import WRITING

ATTACKS = (*WRITING, *READING, *REACHING, *MEDDLING, *PLANTING, *INSIDE)
WORKS = WORKING
BOMBED = (*(bomb.name for bomb in BOMBS), SURVIVE)
