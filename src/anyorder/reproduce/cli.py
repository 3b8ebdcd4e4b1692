"""Commands `anyorder reproduce`: one for each table and figure of the paper."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from anyorder.cli.options import Data, Json, KeptIn, Seed, Whole
from anyorder.reproduce.options import ExperimentOptions, ImagesOptions, RobotOptions, TablesOptions

reproduce = App(name="reproduce", help="The paper's tables and figures, one command each.")

Experiment = Annotated[ExperimentOptions, Parameter(name="*")]
TEXT = ExperimentOptions()

TablesExperiment = Annotated[TablesOptions, Parameter(name="*")]
TABLES = TablesOptions()

ImagesExperiment = Annotated[ImagesOptions, Parameter(name="*")]
IMAGES = ImagesOptions()

RobotExperiment = Annotated[RobotOptions, Parameter(name="*")]
ROBOT = RobotOptions()


@reproduce.command
def table1(*, options: Experiment = TEXT) -> None:
    """Table 1: text, in bits per character.

    Prints joint, marginal and conditional bits of each model beside the paper's, paired
    differences, and a description of each model.

    Example: anyorder reproduce table1 --scale small --data text8 --models path mac --at-once 2

    Models: ardm, mac, mac_strided, mac_exact, path, path_mix, path_rnd, path_one_stream,
    path_mix_one_stream, left_to_right.
    """
    from anyorder.reproduce.table1_figure3 import table1 as run

    run(options)


@reproduce.command
def table2(*, options: ImagesExperiment = IMAGES) -> None:
    """Table 2: ImageNet32, in bits per dimension.

    Prints joint and marginal bits of each model beside the paper's, and paired differences. The
    folder holds the newer or the older public version of the data. Their results are not
    comparable; the table names the version.

    Example: anyorder reproduce table2 --scale paper --data DIR

    Models: ardm, mac, mac_strided, path.
    """
    from anyorder.reproduce.tables2_3 import table2 as run

    run(options)


@reproduce.command
def table3(*, options: ImagesExperiment = IMAGES) -> None:
    """Table 3: CIFAR-10, in bits per dimension; smaller scales have easier data sets.

    Scale small has digits, binarised MNIST, and CIFAR-10 of 8x8 pixels, if DIR holds them. Joint
    likelihoods of binary images are also printed in nats per image, as published ones are.

    Example: anyorder reproduce table3 --scale small --data DIR --at-once 2

    Models: ardm, mac, mac_strided, path.
    """
    from anyorder.reproduce.tables2_3 import table3 as run

    run(options)


@reproduce.command
def figure3(*, options: Experiment = TEXT) -> None:
    """Figure 3: ablation of the law over training masks.

    Prints the marginal bits and a description of each law, and writes figure3.csv and figure3.png
    beside the runs. Models that table1 has trained are not trained again.

    Example: anyorder reproduce figure3 --scale small --data text8 --at-once 2

    Models: ardm, a_only, b_only, a_and_b, b_cr, mac_strided, mac, mac_exact, path.
    """
    from anyorder.reproduce.table1_figure3 import figure3 as run

    run(options)


@reproduce.command
def table4(*, options: TablesExperiment = TABLES) -> None:
    """Table 4: marginal likelihoods on the UCI data sets, in nats.

    Prints log-likelihoods of the first 3, 5 and 10 variables of each data set, as in the paper,
    and of random ones; their time, paired differences, and a description of each model. The folder
    is MAF's archive, unpacked (zenodo.org/record/1161203): power/data.npy, gas/ethylene_CO.csv,
    hepmass/1000_train.csv and 1000_test.csv, miniboone/data.npy and BSDS300/BSDS300.hdf5, or some
    of them.

    Example: anyorder reproduce table4 --scale small --data DIR --sets power miniboone

    Models: ace, mac, mac_mixture, path.
    """
    from anyorder.reproduce.tables4_5 import table4 as run

    run(options)


@reproduce.command
def table5(*, options: TablesExperiment = TABLES) -> None:
    """Table 5: conditional likelihoods on the UCI data sets, in nats per row.

    Each variable is given with probability 1/2, and the rest is queried. Models that table4 has
    trained are not trained again; the folder of the data is the same.

    Example: anyorder reproduce table5 --scale small --data DIR --sets power miniboone

    Models: ace, mac, mac_mixture, path.
    """
    from anyorder.reproduce.tables4_5 import table5 as run

    run(options)


@reproduce.command
def table6(*, options: RobotExperiment = ROBOT) -> None:
    """Table 6: shared autonomy in FrankaKitchen, in tasks completed out of four.

    An operator decides four dimensions of each action, a policy the other five. Prints rewards with
    standard errors over episodes and over trainings, paired differences, likelihoods of held-out
    actions and their calibration. The simulator needs the extra anyorder[robot]. The folder holds
    kitchen/demos.npz, which is replayed first, D4RL's kitchen-mixed-v0.hdf5, or Minari's
    D4RL/kitchen/mixed-v2.

    Example: anyorder reproduce table6 --scale small --data DIR --at-once 2

    Models: bc_fill, mac_fill, bc_full, mac_full, bc_fill_willed, mac_fill_willed.
    """
    from anyorder.reproduce.table6 import table6 as run

    run(options)


@reproduce.command
def samples(
    *,
    run: Path | None = None,
    data: Data = None,
    images: str | None = None,
    out: Path = Path("samples.png"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Appendix: infilled text and images, beside the test data.

    Examples: anyorder reproduce samples;
    anyorder reproduce samples --run runs/digits --images digits --out samples.png

    Parameters
    ----------
    run
        Folder of a model; by default the text model that ships with the package.
    images
        Data set of images to inpaint, as for fit; needs --run, an image model.
    out
        File of the image grid.
    """
    if images is not None:
        from anyorder.errors import ConfigError
        from anyorder.reproduce.samples import image_samples

        if run is None:
            raise ConfigError("`--run` must be the folder of an image model; none ships.")
        image_samples(run, images, out=out, seed=seed)
        return
    from anyorder.reproduce.samples import samples as show

    show(run=run, data=data, seed=seed, json=json)


@reproduce.command
def table7(
    *, samples: Whole = 1_000_000, seed: Seed = 0, json: Json = False, record: KeptIn = None
) -> None:
    """Table 7: laws over masks induced by queries and protocols, exact and simulated.

    Example: anyorder reproduce table7 --samples 100000

    Parameters
    ----------
    samples
        Number of masks that are sampled from each law.
    """
    from anyorder.reproduce.table7 import table7 as run

    run(samples=samples, seed=seed, json=json, record=record)
