"""The README's tables are those of the records, and its Python runs."""

import doctest
import re

import pytest

from experiments.tables import BLOCK, DOCUMENTS, ROOT, filled

WITH_PYTHON = [ROOT / "README.md", ROOT / "docs" / "tables.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_made_from_the_records(path):
    text = path.read_text()
    assert BLOCK.search(text), "a document that is listed has a table"
    assert filled(text) == text, "run `make tables`"


@pytest.mark.parametrize("path", WITH_PYTHON, ids=lambda path: path.name)
def test_python_blocks_run_and_print_what_they_say(path):
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    assert blocks
    parsed = doctest.DocTestParser().get_doctest(
        "".join(blocks), {}, path.name, str(path), lineno=0
    )
    assert parsed.examples
    results = doctest.DocTestRunner().run(parsed)
    assert results.failed == 0
