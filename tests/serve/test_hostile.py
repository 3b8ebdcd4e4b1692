"""Requests made up from the OpenAPI description, right and wrong, find no error of the server."""

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.serve.conftest import client

EXAMPLES = 8
"""Requests for each route, of each kind."""


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("domain", ["table", "text", "image"])
def test_no_request_finds_an_error_of_the_server(domain, mode, request):
    address = request.getfixturevalue(f"{domain}_address")
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    asked = 0
    for operation in schema.get_all_operations():
        asked += _ask(operation.ok(), mode)
    assert asked > EXAMPLES


def _ask(operation, mode):
    count = 0

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        nonlocal count
        count += 1
        answer = case.call()
        case.validate_response(answer, checks=[not_a_server_error])
        if answer.status_code >= 400:
            assert answer.json()["detail"]

    try:
        ask()
    except hypothesis.errors.Unsatisfiable:  # a route without a body cannot be asked wrongly
        assert operation.method == "get"
    return count


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["nurse", "41", "2001-02-03", "1 days", "inf", "nan", "-1e400"]),
)
NAMES = st.sampled_from(["age", "income", "hours", "job", "born", "member"])
EVIDENCE = st.dictionaries(
    NAMES,
    CELLS | st.lists(CELLS, max_size=3) | st.fixed_dictionaries({"low": CELLS, "high": CELLS}),
)


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True, database=None)
@hypothesis.given(evidence=EVIDENCE, rows=st.lists(st.dictionaries(NAMES, CELLS), max_size=3))
def test_no_value_of_a_real_column_does_either(table_address, evidence, rows):
    with client(table_address) as asking:
        for path, body in (
            ("conditionals", {"given": evidence, "columns": None}),
            ("surprise", {"given": evidence}),
            ("impute", {"rows": rows, "seed": 0}),
            ("log_prob", {"rows": rows}),
        ):
            answer = asking.post(f"/v1/{path}", json=body)
            assert answer.status_code in (200, 413, 422), (path, body, answer.text)
