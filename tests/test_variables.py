"""Schemas survive JSON, and refuse what they cannot describe."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder import Schema, SchemaError, Variable

NAMES = st.text(min_size=1, max_size=8)
LEVELS = st.lists(
    st.one_of(st.text(max_size=5), st.integers(2, 10**15), st.floats(-0.9, -0.1), st.booleans()),
    min_size=1,
    max_size=6,
    unique=True,
)
ATOMS = st.lists(st.floats(allow_nan=False, allow_infinity=False), unique=True).map(sorted)
VARIABLES = st.one_of(
    st.builds(Variable.continuous, NAMES, atoms=ATOMS, context=st.booleans()),
    st.builds(Variable.categorical, NAMES, LEVELS, context=st.booleans()),
)


@given(st.lists(VARIABLES, min_size=1, max_size=8, unique_by=lambda v: v.name))
def test_json_round_trip(variables):
    schema = Schema(tuple(variables))
    back = Schema.from_json(schema.to_json())
    assert back == schema
    levels = [[type(level) for level in v.levels or ()] for v in schema]
    assert [[type(level) for level in v.levels or ()] for v in back] == levels


def test_levels_of_numpy_become_plain():
    levels = Variable.categorical("a", np.unique([3, 1, 3])).levels
    assert [type(level) for level in levels] == [int, int]
    assert "a" in Schema((Variable.continuous("a"),))
    assert "b" not in Schema((Variable.continuous("a"),))


def test_context_stands_outside_the_count():
    schema = Schema((Variable.continuous("state", context=True), Variable.continuous("action")))
    assert (schema.num_variables, len(schema), schema["action"].num_levels) == (1, 2, 0)


def test_atoms_are_written_only_where_there_are_some():
    schema = Schema((Variable.continuous("age"), Variable.continuous("rain", atoms=[0])))
    entries = json.loads(schema.to_json())["variables"]
    assert ["atoms" in entry for entry in entries] == [False, True]
    assert Schema.from_json(schema.to_json())["rain"].atoms == (0.0,)
    assert Variable.continuous("a", atoms=np.array([0, 2.5], dtype=np.float32)).atoms == (0.0, 2.5)


BAD_VARIABLES = {
    "no name": (lambda: Variable.continuous(""), "non-empty string; got ''"),
    "odd kind": (
        lambda: Variable("a", "ordinal"),
        '"categorical" or "continuous"; got \'ordinal\'',
    ),
    "levels of a number": (lambda: Variable("a", "continuous", (1,)), "must not have `levels`"),
    "no levels": (lambda: Variable.categorical("a", []), "at least one level; got none"),
    "NaN level": (
        lambda: Variable.categorical("a", [1.0, float("nan")]),
        "finite numbers; got nan",
    ),
    "letters": (lambda: Variable.categorical("a", "abc"), "must be a list, in order; got 'abc'"),
    "a set": (lambda: Variable.categorical("a", {"x"}), "must be a list, in order"),
    "a number": (lambda: Variable.categorical("a", 5), "must be a list, in order; got 5"),
    "flag": (lambda: Variable.continuous("a", context="no"), '`context` of "a" must be True or'),
    "atoms of a category": (
        lambda: Variable("a", "categorical", (1,), False, (0.0,)),
        '"a" is categorical and must not have `atoms`',
    ),
    "atoms of text": (lambda: Variable.continuous("a", atoms="01"), "a list of numbers; got '01'"),
    "odd atoms": (lambda: Variable.continuous("a", atoms=["x"]), "must be a list of numbers"),
    "one atom": (lambda: Variable.continuous("a", atoms=3.0), "must be a list of numbers; got 3.0"),
    "infinite atom": (
        lambda: Variable.continuous("a", atoms=[0.0, float("inf")]),
        'The atoms of "a" must be finite; got inf',
    ),
    "atoms out of order": (
        lambda: Variable.continuous("a", atoms=[1, 1]),
        "must ascend and differ; 1.0 follows 1.0. Sort them",
    ),
    "not a list": (lambda: Schema(5), "a list of variables; got 5"),
    "deep": (lambda: Schema.from_json("[" * 100_000), "not a schema written by anyorder"),
    "twice": (lambda: Variable.categorical("a", ["x", "x"]), "'x' occurs 2 times"),
    "equal in JSON": (lambda: Variable.categorical("a", [1, True]), "1 occurs 2 times"),
    "no variables": (lambda: Schema(()), "at least one variable; got none"),
    "not a variable": (lambda: Schema(("age",)), "`Variable`s only; got 'age'"),
    "same name": (lambda: Schema((Variable.continuous("a"),) * 2), '"a" occurs 2 times. Rename it'),
    "unknown": (
        lambda: Schema((Variable.continuous("age"),)).index("agee"),
        'no variable "agee". Did you mean "age"?',
    ),
    "not JSON": (lambda: Schema.from_json("{"), "not a schema written by anyorder"),
    "other JSON": (lambda: Schema.from_json("[1]"), "not a schema written by anyorder"),
    "newer": (
        lambda: Schema.from_json(json.dumps({"format": 9, "variables": []})),
        "has format 9; this version reads 1",
    ),
}


@pytest.mark.parametrize("name", BAD_VARIABLES)
def test_bad_descriptions_are_refused_in_a_sentence(name):
    build, sentence = BAD_VARIABLES[name]
    with pytest.raises(SchemaError) as caught:
        build()
    assert sentence in str(caught.value)
