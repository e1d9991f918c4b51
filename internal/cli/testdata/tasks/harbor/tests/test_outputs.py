import os
from pathlib import Path

DATA = Path(os.environ["DATA_DIR"])


def test_lengths():
    assert (DATA / "lengths.csv").read_text() == "apple,5\nfig,3\npear,4\n"


def test_owner():
    assert (DATA / "lengths.csv").owner() == "worker"


def test_ignored_file_is_not_there():
    assert not (DATA / "secret.txt").exists()
