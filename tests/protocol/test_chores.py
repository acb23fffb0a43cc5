"""What a worker does for the supervisor beside tools."""

import pytest

from protocol import chores
from protocol.tools.catalog import ArgumentsError


@pytest.mark.parametrize("name", chores.CHORES)
@pytest.mark.parametrize("arguments", ["", "{", '{"no": 1}'])
def test_a_chore_s_arguments_that_can_t_be_read_are_refused_by_its_name(name: str, arguments: str) -> None:
    with pytest.raises(ArgumentsError, match=name):
        chores.decode(name, arguments)
