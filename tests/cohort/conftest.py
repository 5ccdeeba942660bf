"""A cohort of small phantoms as files, made once."""

import pytest

from people import write_people


@pytest.fixture(scope="session")
def people(tmp_path_factory):
    """A folder with a template, three people, their labels and a table."""
    return write_people(tmp_path_factory.mktemp("people"))
