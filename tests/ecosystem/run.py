"""What people bring: architectures of torchvision, timm, transformers, ultralytics and sentence-transformers, with
random weights, through qbench's own stages up to the evaluation.

    python tests/ecosystem/run.py FOLDER [--list third] [--only 'bert,yolo*'] [--modes static] [...]
    python tests/ecosystem/run.py FOLDER --times [yolov8n resnet50 ...] [--rounds 10] [...]

Makes ``FOLDER/venv`` with these packages (they are no dependency of qbench, and nothing of them is copied here) beside
the packages of the Python that runs this, then runs ``tests/architectures/run.py`` over them, whose options and table
it has: ok (SQNR, coverage), skipped with its reason, FAILED, SUSPICIOUS; last the slowest networks. Each result is kept
in ``FOLDER/results``, so that a run that was stopped goes on. Its exit code is 1 where anything failed.

``--times``: the networks of ``full_size.py``, in the size that people run, go through ``tests/benchmarks/by_hand.py``,
whose options and table it has: the time of a call, the SQNR and each build of qbench's files and of those by hand.

The lists after the first were chosen before any of them was tried, to tell how a network fares that nobody has
looked at. The first look at each is on the guide's evidence page; from then on it is seen, and a next look needs a list
of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import site
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LISTS = {
    "first": ("image_models", "text_models", "detectors", "exported"),
    "second": ("unseen_images", "unseen_sequences"),
    "third": ("third_images", "third_sequences"),
    "fourth": ("fourth",),
}
# Without their dependencies, which would bring another torch; what of these is needed is named.
PACKAGES = (
    *("torchvision==0.28.*", "timm", "transformers", "ultralytics", "sentence-transformers", "opencv-python-headless"),
    *("huggingface_hub", "tokenizers", "regex", "safetensors", "hf-xet", "polars", "polars-runtime-32"),
)
_INSIDE = "QBENCH_ECOSYSTEM"  # set in the process that runs in the venv: the folder


def main(words: list[str] | None = None) -> int:
    """Makes the venv where it is missing, and runs this again in it; there, the table."""
    parser = argparse.ArgumentParser(description="Build networks as people have them.")
    parser.add_argument("folder", type=Path, help="of the venv and the results")
    parser.add_argument("--list", choices=LISTS, default="first", help="of networks")
    parser.add_argument("--times", action="store_true", help="measure networks of full size")
    given, options = parser.parse_known_args(words)
    folder = given.folder.resolve()
    if os.environ.get(_INSIDE) != str(folder):
        return run_inside(folder, ["--list", given.list, *(["--times"] if given.times else []), *options])
    if given.times:
        import by_hand
        import full_size

        by_hand.main(options, tuple(full_size.NETWORKS), full_size.make_subject)
        return 0
    import run as architectures
    import zoo

    zoo.FAMILIES = LISTS[given.list]
    results = folder / "results"
    code = architectures.main([*options, "--out", str(results)])
    print("\n".join(list_slowest(results)))
    return code


def run_inside(folder: Path, options: list[str]) -> int:
    """Runs this file in the folder's venv."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        make_venv(folder / "venv")
    paths = [*(str(HERE.parent / name) for name in ("architectures", "benchmarks")), str(HERE), str(ROOT)]
    environment = os.environ | {
        _INSIDE: str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
        "YOLO_CONFIG_DIR": str(folder / "settings"),
        "QBENCH_CACHE": str(folder / "cache"),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    command = [str(python), str(HERE / "run.py"), str(folder), *options]
    return subprocess.run(command, env=environment, check=False).returncode


def make_venv(folder: Path) -> None:
    """The packages, beside those of this Python, which come first."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "beside.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES]
    subprocess.run(install, check=True)


def list_slowest(results: Path, most: int = 5) -> list[str]:
    """``slowest: convnext_tiny 48 s``: the networks whose stages took longest, of those that are known."""
    seconds = {
        file.stem: max(outcome.get("seconds", 0.0) for outcome in json.loads(file.read_text()).values())
        for file in results.glob("*.json")
    }
    slowest = sorted(seconds.items(), key=lambda pair: -pair[1])[:most]
    return [f"slowest: {name} {taken:.0f} s" for name, taken in slowest]


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent / "architectures"), str(HERE)]
    sys.exit(main())
