"""Writes the run folders beside this file: `python -m tests.saved_runs.write FOLDER`.

Each folder keeps a small model as version 0.1.0 saved it; `answers.json` keeps its answers.
`tests/test_saved_runs.py` asks the code of today the same questions.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import anyorder as ao


def people(rows: int = 80) -> pd.DataFrame:
    """Returns a mixed table with missing values: categories, numbers, repeated values, dates."""
    rng = np.random.default_rng(7)
    job = rng.choice(["nurse", "clerk", "smith"], rows, p=[0.5, 0.3, 0.2])
    age = rng.integers(20, 65, rows).astype(float)
    pay = 900 + 30 * age + 400 * (job == "smith") + rng.normal(0, 90, rows)
    hours = np.where(rng.random(rows) < 0.4, 40.0, rng.uniform(10, 60, rows).round(1))
    frame = pd.DataFrame(
        {
            "job": job,
            "age": age,
            "pay": pay.round(2),
            "hours": hours,
            "member": rng.random(rows) < 0.3,
            "since": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, rows), "D"),
        }
    )
    for name in ("job", "age", "pay"):
        frame[name] = frame[name].mask(rng.random(rows) < 0.1)
    return frame


def pictures() -> np.ndarray:
    """Returns images of 4x4 pixels with bright and dark halves."""
    rng = np.random.default_rng(3)
    level = rng.integers(0, 2, (96, 1, 1, 1)) * 128
    return (level + rng.integers(0, 96, (96, 4, 4, 1))).astype(np.uint8)


TEXT = "the cat sat on the mat; the dog sat on the log. " * 40


def table_answers(model: ao.TableModel) -> dict:
    """Returns answers of a table model: likelihoods, conditionals, predictions, samples."""
    frame = people()
    pay = model.conditional("pay", given={"job": "smith", "age": 40})
    job = model.conditional("job", given={"pay": (2000, 2600)})
    return {
        "joint": model.log_prob(frame).tolist(),
        "conditional": model.log_prob(frame.dropna(), query=["pay"], given=["job", "age"]).tolist(),
        "pay quantiles": [float(pay.quantile(q)) for q in (0.1, 0.5, 0.9)],
        "pay mean": float(pay.mean()),
        "job": {str(k): float(v) for k, v in job.probabilities().items()},
        "predicted": model.predict(frame, target="pay").tolist(),
        "gains": model.information_gain("pay", given={"job": "clerk"}).to_dict(),
        "sample": model.sample(3, random_state=1).astype(str).to_dict("list"),
        "imputed": model.impute(frame.head(20), how="mean").astype(str).to_dict("list"),
    }


def text_answers(model: ao.TextModel) -> dict:
    """Returns answers of a text model: likelihoods and infillings."""
    return {
        "log_prob": np.asarray(model.log_prob("the cat sat on t")).tolist(),
        "infill": model.infill("the c_t s_t on t", random_state=0),
    }


def image_answers(model: ao.ImageModel) -> dict:
    """Returns answers of an image model: likelihoods and samples."""
    return {
        "log_prob": np.asarray(model.log_prob(pictures()[:5])).tolist(),
        "sample": np.asarray(model.sample(2, random_state=1)).tolist(),
    }


def main(folder: Path) -> None:
    """Fits the models, saves them below `folder`, and writes what they answer."""
    settings = ao.TrainingSettings(steps=30, batch=8, warmup=2)
    small = {"layers": 1, "width": 8, "heads": 2}
    table = ao.TableModel(max_steps=30, **small).fit(people())
    ensemble = ao.TableModel(max_steps=20, members=2, **small).fit(people())
    source = folder / "source.txt"
    source.write_text(TEXT)
    text = ao.TextModel(length=16, settings=settings, **small)
    from anyorder.images.data import from_array
    from anyorder.text.data import load_text

    text.fit(load_text(source))
    source.unlink()
    image = ao.ImageModel(settings=settings, **small).fit(from_array(pictures()))
    for name, model in {"table": table, "ensemble": ensemble, "text": text, "image": image}.items():
        model.save(folder / name)
    found = {
        "table": table_answers(table),
        "ensemble": table_answers(ensemble),
        "text": text_answers(text),
        "image": image_answers(image),
    }
    (folder / "answers.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
