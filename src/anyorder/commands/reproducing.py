"""`anyorder reproduce`: the paper's tables and figures, one verb each."""

from pathlib import Path

from cyclopts import App

from anyorder.commands.options import (
    AtOnce,
    Data,
    Json,
    KeptIn,
    Minutes,
    Names,
    Runs,
    Scale,
    Seed,
    Whole,
)

reproduce = App(name="reproduce", help="The paper's tables and figures, one command each.")


@reproduce.command
def table1(
    *,
    scale: Scale = "tiny",
    data: Data = None,
    out: Runs = Path("runs/table1"),
    models: Names = None,
    minutes: Minutes = None,
    at_once: AtOnce = 1,
    seed: Seed = 0,
    json: Json = False,
    record: KeptIn = None,
) -> None:
    """Table 1: text, in bits for each character.

    Prints joint, marginal and conditional bits of each model beside the paper's, paired
    differences, and what the names mean.

    Example: anyorder reproduce table1 --scale small --data text8 --models path mac --at-once 2

    Parameters
    ----------
    models
        Which of ardm, mac, mac_strided, path, path_mix, path_rnd, path_one_stream,
        path_mix_one_stream, left_to_right; all by default.
    """
    from anyorder.reproduce.table1 import table1 as run

    run(
        scale=scale,
        data=data,
        out=out,
        models=models,
        minutes=minutes,
        at_once=at_once,
        seed=seed,
        json=json,
        record=record,
    )


@reproduce.command
def figure3(
    *,
    scale: Scale = "tiny",
    data: Data = None,
    out: Runs = Path("runs/figure3"),
    models: Names = None,
    minutes: Minutes = None,
    at_once: AtOnce = 1,
    seed: Seed = 0,
    json: Json = False,
    record: KeptIn = None,
) -> None:
    """Figure 3: what each idea adds to the law that training masks are drawn from.

    Prints marginal bits of each law and what its name means, and writes figure3.csv and
    figure3.png beside the runs.

    Example: anyorder reproduce figure3 --scale small --data text8 --at-once 2

    Parameters
    ----------
    models
        Which of card_uniform, a_only, b_only, a_and_b, b_cr, a_and_b_cr, exact_weights,
        exact_path; all by default.
    """
    from anyorder.reproduce.figure3 import figure3 as run

    run(
        scale=scale,
        data=data,
        out=out,
        models=models,
        minutes=minutes,
        at_once=at_once,
        seed=seed,
        json=json,
        record=record,
    )


@reproduce.command
def samples(
    *, run: Path | None = None, data: Data = None, seed: Seed = 0, json: Json = False
) -> None:
    """The appendix: test text, the same with holes, and how a model fills them.

    Example: anyorder reproduce samples

    Parameters
    ----------
    run
        The folder of a model of text; the model that ships with the package by default.
    """
    from anyorder.reproduce.samples import samples as show

    show(run=run, data=data, seed=seed, json=json)


@reproduce.command
def table7(
    *, samples: Whole = 1_000_000, seed: Seed = 0, json: Json = False, record: KeptIn = None
) -> None:
    """Table 7: the laws over masks that queries and protocols induce, exactly and by simulation.

    Example: anyorder reproduce table7 --samples 100000

    Parameters
    ----------
    samples
        How many masks the simulation draws from each law.
    """
    from anyorder.reproduce.table7 import table7 as run

    run(samples=samples, seed=seed, json=json, record=record)
