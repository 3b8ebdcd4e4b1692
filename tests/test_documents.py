"""The tables of the documents are those of the records, and their Python runs."""

import doctest
import re
import subprocess
import sys

import pytest

import anyorder
from experiments.tables import BLOCK, DOCUMENTS, ROOT, filled

WITH_PYTHON = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "```python\n" in path.read_text()
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_made_from_the_records(path):
    text = path.read_text()
    assert BLOCK.search(text), "a document that is listed has a table"
    assert filled(text) == text, "run `make tables`"


def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    places = [str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run([*command, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "api.html").read_text()
    assert "anyorder.TableModel" in page
    assert "edge_weights" in page


def test_the_version_to_cite_is_that_of_the_package():
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == anyorder.__version__


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
