"""The questions that a table is trained for: from what people write to a law of the model."""

from collections.abc import Iterable, Sequence
from typing import Any

from anyorder.configuration import describe
from anyorder.data.table import TableSchema
from anyorder.errors import ConfigError, check_choice
from anyorder.estimators.table_fitting import table_queries
from anyorder.estimators.table_questions import column_set
from anyorder.masks import MaskDistribution
from anyorder.query_laws import QueryLaw, QueryList, as_query_law
from anyorder.query_renumbering import renumbered

Question = tuple[Sequence[str], Sequence[str], float]

Queries = str | QueryLaw | MaskDistribution | Iterable[Question]
"""What a caller may ask for; see `TableModel`."""


def law_of(queries: Queries, table: TableSchema) -> QueryLaw:
    """The law over the columns that can be asked, numbered as in the model.

    A law that is given by numbers has them in the order of the frame, whatever the order of the
    model is: that may be learned, and is unknown to who writes the law.
    """
    names = table.names
    if isinstance(queries, str):
        check_choice("queries", queries, ("any",))
        return table_queries(len(names))
    if isinstance(queries, QueryLaw | MaskDistribution):
        law = as_query_law(queries)
        if law.num_variables != len(names):
            raise ConfigError(
                f"`queries` must be a law over the {len(names)} columns that can be asked; it "
                f"is over {law.num_variables}."
            )
        return renumbered(law, [names.index(name) for name in table.layout if name in names])
    entries = []
    for given, query, weight in _questions(queries):
        known, asked = (
            column_set(table, part, argument="queries").nonzero().flatten().tolist()
            for part in (given, query)
        )
        if both := [names[place] for place in asked if place in known]:
            raise ConfigError(
                f'`queries` must not ask for what is given; "{both[0]}" is both: drop it from one.'
            )
        entries.append((known, asked, weight))
    return QueryList(len(names), entries)


def check_any_order(law: QueryLaw) -> None:
    """Refuses a law that could not follow another order, before one is searched for."""
    renumbered(law, range(law.num_variables)[::-1])


def is_for_any(law: QueryLaw) -> bool:
    """Whether a model of the law was trained for any question, as queries="any" has it."""
    return describe(law) == describe(table_queries(law.num_variables))


def _questions(queries: Any) -> list[Question]:
    """Questions that were listed, or an error that says how they are written."""
    try:
        return [(given, query, weight) for given, query, weight in queries]
    except (TypeError, ValueError):
        raise ConfigError(
            '`queries` must be "any", a law, or a list of (given, query, weight), such as '
            f'[(["age", "job"], "income", 1.0)]; got {queries!r}.'
        ) from None
