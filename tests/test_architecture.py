"""The house rules that a reader relies on: the way imports go, and the size of files."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "anyorder"

# Each layer may import from the layers before it; names of one layer may not import each other,
# except where they are listed one by one.
LAYERS = [
    ["errors"],
    ["variables"],
    ["random_sets", "atoms", "line"],
    ["masks"],
    ["query_laws"],
    ["query_mixtures"],
    ["query_words", "query_renumbering"],
    ["protocols"],
    ["tosses"],
    ["weighted_queries"],
    ["lattice"],
    ["enumeration", "exact_weights", "configuration"],
    ["networks.contracts", "networks.dropout"],
    ["networks.belief", "networks.ensemble", "networks.normal_moments", "networks.unit_scales"],
    ["networks.normal_mixture", "networks.unit_choice"],
    ["networks.normal_guide", "networks.level_scores"],
    ["networks.level_guide"],
    ["networks.guided"],
    ["networks.blocks", "networks.embedding", "networks.paths"],
    ["networks.path_attention", "networks.path_state"],
    ["networks.path_streams", "networks.transformer", "networks.perceptron", "networks.unet"],
    [
        "networks.path_transformer",
        "networks.single_stream",
        "networks.residual_mlp",
        "networks.state_mlp",
        "networks.state_path",
    ],
    ["networks.patches", "networks.patch_state", "networks.patch_trunk"],
    ["networks.patch_decoder"],
    ["networks.patch_path"],
    ["conditionals.contracts"],
    ["conditionals.categorical", "conditionals.quadrature"],
    ["conditionals.logistic_levels"],
    ["conditionals.continuous"],
    ["conditionals.mixture", "conditionals.spline"],
    ["conditionals.energy"],
    ["conditionals.heads"],
    ["conditionals.on_scale"],
    ["conditionals.guided"],
    ["conditionals.atomic"],
    ["conditionals.mixed"],
    ["conditionals.averages"],
    ["model"],
    ["walks"],
    ["queries"],
    ["losses", "speculation", "soft_evidence", "stratified"],
    ["storage"],
    ["checkpoint"],
    ["training.processes"],
    ["training.settings", "training.interrupts", "training.denormals"],
    ["training.distributed", "training.rows"],
    ["training.batches"],
    ["training.learner", "training.progress"],
    ["training.fit"],
    ["evaluation"],
    ["orders"],
    ["diagnostics.gaps", "diagnostics.drawn_sets"],
    ["diagnostics.orders", "diagnostics.evidence", "diagnostics.marginalisation"],
    ["diagnostics.calibration", "diagnostics.predictions"],
    ["diagnostics.plots", "diagnostics.row_sample", "diagnostics.worth"],
    ["diagnostics.report"],
    ["diagnostics.check"],
    [
        "data.text",
        "data.gaussianizer",
        "data.uci",
        "data.row_print",
        "data.date_forms",
        "data.number_forms",
    ],
    ["data.coercion", "data.robot"],
    ["data.kitchen"],
    ["data.robot_files", "data.robot_replay", "data.robot_toy"],
    ["data.robot_sources"],
    ["data.measures"],
    ["data.columns"],
    ["data.categories", "data.code_ranges"],
    ["data.inference", "data.decimals"],
    ["data.dialects"],
    ["data.frames", "data.table"],
    ["data.image", "data.image_archives", "data.image_pickles"],
    ["data.image_changes", "data.image_files", "data.image_public"],
    ["data.cifar10", "data.imagenet32", "data.mnist", "data.image_holes"],
    ["data.image_sources", "data.image_grid", "data.image_rows"],
    [
        "estimators.text_answers",
        "estimators.image_answers",
        "estimators.image_network",
        "estimators.table_batches",
    ],
    [
        "estimators.text",
        "estimators.image",
        "estimators.conditional",
        "estimators.table_doubts",
        "estimators.table_fitting",
        "estimators.privacy",
    ],
    [
        "estimators.table_questions",
        "estimators.table_notes",
        "estimators.table_orders",
        "estimators.table_members",
        "estimators.table_inputs",
        "estimators.table_skill",
    ],
    ["estimators.table_answers", "estimators.table_queries"],
    ["estimators.table", "estimators.table_mixture"],
    ["estimators.loading", "report.style", "commands.terminal"],
    ["commands.showing"],
    ["report.page", "report.figures"],
    ["report.sections"],
    ["report.table", "report.text", "report.image"],
    ["policy.contracts"],
    ["policy.scaling", "policy.shared", "policy.rollouts"],
    ["policy.steering"],
    ["policy.fitted"],
    ["policy.cloning", "policy.conditional"],
    ["commands.options", "reproduce.record", "reproduce.resampling"],
    ["reproduce.options", "reproduce.catalogue"],
    [
        "reproduce.showing",
        "reproduce.text_catalogue",
        "reproduce.uci_catalogue",
        "reproduce.image_catalogue",
    ],
    ["reproduce.text_models", "reproduce.uci_models", "reproduce.robot_models"],
    ["reproduce.jobs", "reproduce.budget"],
    ["reproduce.experiment"],
    [
        "reproduce.text_experiment",
        "reproduce.uci_experiment",
        "reproduce.image_experiment",
        "reproduce.robot_experiment",
    ],
    ["reproduce.uci_tables", "reproduce.image_tables"],
    ["reproduce.table4", "reproduce.table5"],
    [
        "reproduce.table1",
        "reproduce.figure3",
        "reproduce.samples",
        "reproduce.table6",
        "reproduce.table7",
    ],
    ["scale.crew"],
    ["commands.notation", "commands.streams", "commands.runs"],
    [
        "commands.targets",
        "commands.chunks",
        "commands.doubts",
        "commands.endings",
        "commands.suggesting",
    ],
    ["commands.overwriting", "commands.resuming"],
    ["commands.text", "commands.image", "commands.scoring", "commands.asking", "commands.about"],
    ["commands.table", "commands.checking", "commands.reporting"],
    ["serve.limits", "serve.metrics", "serve.curves", "serve.evidence"],
    ["serve.batching", "serve.guard", "serve.conditionals"],
    ["serve.asking", "serve.gains", "serve.summaries"],
    ["serve.table_messages", "serve.table_answering"],
    ["serve.table_routes", "serve.text_routes", "serve.image_routes"],
    ["serve.app"],
    ["serve.running"],
    ["commands.serving"],
    ["commands.domains", "demo.telling", "demo.answer", "demo.hidden", "reproduce.image_samples"],
    ["commands.questions"],
    ["demo.text", "demo.table", "demo.digits", "demo.speed"],
    ["demo.show"],
    ["commands.verbs", "commands.reproducing"],
    ["cli"],
    ["__main__"],
]
PLACE = {module: place for place, layer in enumerate(LAYERS) for module in layer}
MODULES = sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anyorder."):
            found.add((node.module or "").removeprefix("anyorder."))
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names if alias.name.startswith("anyorder.")}
            found |= {name.removeprefix("anyorder.") for name in names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_go_one_way(path):
    name = module_name(path)
    if path.name == "__init__.py":
        assert not imported(path), "the public names are listed in __init__.pyi"
        return
    assert name in PLACE, f"give {name} its place in LAYERS"
    for other in imported(path):
        assert PLACE[other] < PLACE[name], f"{name} must not import {other}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_files_are_small_and_named_after_their_idea(path):
    assert len(path.read_text().splitlines()) < 400
    assert path.stem not in {"utils", "common", "core", "helpers", "base", "manager"}


def test_public_names_are_all_there():
    import anyorder

    assert len(anyorder.__all__) > 20
    for name in anyorder.__all__:
        found = getattr(anyorder, name)
        assert getattr(found, "__module__", found.__name__).startswith("anyorder.")
