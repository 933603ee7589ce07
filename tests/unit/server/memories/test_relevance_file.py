"""Which files of relevance curves a server starts with."""

from pathlib import Path

import pytest

from runekeep_server.services import StartError, read_calibrations
from runekeep_server.settings.model import Settings
from runekeep_storage.search.relevance import Calibration


def test_a_file_adds_the_curves_of_its_models(tmp_path: Path) -> None:
    file = tmp_path / "relevance.json"
    file.write_text('{"openai/m": {"slope": 0.4, "offset": -4}, "openai/n": {"slope": 1, "offset": 0}}')
    found = read_calibrations(Settings(relevance_file=file))
    assert found == {"openai/m": Calibration(0.4, -4.0), "openai/n": Calibration(1.0, 0.0)}
    assert read_calibrations(Settings(relevance_file=None)) == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"m": {"slope": 0.4}}', "`offset` of `m`: Field required"),
        ('{"m": {"slope": 0, "offset": 1}}', "`slope` of `m`: Input should be greater than 0"),
        ('{"m": {"slope": "0.4", "offset": 1}}', "`slope` of `m`"),
        ('{"m": {"slope": 0.4, "offset": NaN}}', "`offset` of `m`"),
        ('{"m": {"slope": 0.4, "offset": 1, "ofset": 2}}', "`ofset` of `m`"),
        ('{"m": 0.4}', "`m`"),
        ('["m"]', "object"),
        ("slope: 0.4", "JSON"),
        ("", "JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_entry(tmp_path: Path, text: str, names: str) -> None:
    file = tmp_path / "relevance.json"
    file.write_text(text)
    with pytest.raises(StartError, match=r"RUNEKEEP_RELEVANCE_FILE") as caught:
        read_calibrations(Settings(relevance_file=file))
    assert f"{file}: " in str(caught.value) and names in str(caught.value)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file"):
        read_calibrations(Settings(relevance_file=tmp_path / "missing.json"))
