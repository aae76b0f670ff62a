"""``profile`` and ``simulate`` return the results of the subcommands."""

import pathlib

import pytest

import buddy

RUN = pathlib.Path(__file__).parents[2] / "examples/run"


def test_a_profile_has_targets_a_page_and_a_file():
    found = buddy.profile(RUN, codec="auto", verify=True)
    assert {one.name for one in found.targets} == {"heat", "material"} and found.ratio > 1
    assert found.optimistic_ratio > 1 and "heat" in str(found) and found.targets_toml.startswith("#")
    assert "<svg" in found.to_html() and found._repr_html_().startswith("<iframe")
    assert found.to_dict()["kind"] == "profile" and found.data["verified"]


def test_a_simulation_and_a_sweep():
    one = buddy.simulate("stream", size=1, mode="buddy", targets="2x")
    both = buddy.simulate("stream", size=1, targets="2x", sweep=["mode=ideal,buddy"])
    assert len(one.cycles) == 1 and len(both.cycles) == 2 and both.cycles[1] == one.cycles[0]
    assert both.runs[0]["mode"] == "ideal" and "cycles" in str(both)


def test_errors_of_the_command_are_raised_with_its_message(tmp_path):
    with pytest.raises(ValueError, match="unexpected argument '--colour'"):
        buddy.profile(RUN, colour="red")
    with pytest.raises(RuntimeError, match="nowhere"):
        buddy.profile(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match="needs targets"):
        buddy.simulate("stream", mode="buddy", size=1)
