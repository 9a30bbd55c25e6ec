"""Links of VMs on the command line: told, refused with the nearest that fits, and every bad one by its place."""

from __future__ import annotations

import pytest
from scene import FLOW, Scene

SIZED = {**FLOW, "edges": [{**edge, "row_bytes": 1000} for edge in FLOW["edges"]]}


@pytest.fixture
def sized(scene: Scene) -> Scene:
    scene.topology(SIZED)
    return scene


def test_a_plan_tells_what_its_links_carry(sized: Scene):
    told = sized.run("plan", "--rate", "100", "--vms", "1:10,1:10,1,1", "--mapper", "dsm")
    assert "vm1 sends " in told and "of the 10 of its link." in told and "vm3 sends" not in told
    for word in ("explain",):
        assert "of the 10 of its link." in sized.run(
            word, "--rate", "100", "--vms", "1:10,1:10,1,1", "--mapper", "dsm"
        )


def test_what_links_do_not_hold_ends_4_with_the_nearest_that_fits(sized: Scene):
    sized.run("plan", "--rate", "100", "--vms", "2:0.5,4:0.5", "--mapper", "dsm", code=4)
    assert "Mbit/s and its link has 0.5" in sized.err and "Mbit/s too few" in sized.err
    nearest = float(sized.err.split("a plan for ")[1].split()[0])
    assert 0 < nearest < 100
    sized.run("plan", "--rate", str(nearest * 0.999), "--vms", "2:0.5,4:0.5", "--mapper", "dsm")
    if "--mapper " in sized.err:
        other = sized.err.split("--mapper ")[1].split()[0]
        sized.run("plan", "--rate", "100", "--vms", "2:0.5,4:0.5", "--mapper", other)


def test_sizes_of_rows_that_nobody_knows_refuse_nothing(scene: Scene):
    assert "of its link" not in scene.run(
        "plan", "--rate", "100", "--vms", "2:0.001,4:0.001", "--mapper", "dsm"
    )


@pytest.mark.parametrize("link", ["0", "-1", "nan", "inf", "wide", "", "1e8"])
def test_a_link_that_cannot_be_ends_2_and_is_named(scene: Scene, link: str):
    scene.run("plan", "--rate", "100", "--vms", f"4,4:{link}", code=2)
    assert f"'4:{link}'" in scene.err and "Mbit/s" in scene.err


@pytest.mark.parametrize("link", ["0", "-1", "nan", "inf", '"wide"', "true", "1e8"])
def test_a_price_list_with_such_a_link_ends_3_and_names_it(scene: Scene, link: str):
    path = scene.folder / "prices.toml"
    size = f'[[size]]\nname = "D"\nslots = 4\nusd_per_hour = 0.1\nbandwidth_mbps = {link}\n'
    path.write_text(f'schema = "headgate/prices/v1"\n{size}')
    scene.run("plan", "--rate", "100", "--prices", str(path), code=3)
    assert "size[0].bandwidth_mbps: expected a number above 0" in scene.err


def test_a_price_list_may_tell_links(sized: Scene):
    path = sized.folder / "prices.toml"
    size = '[[size]]\nname = "D"\nslots = 1\nusd_per_hour = 0.1\nbandwidth_mbps = 0.01\n'
    path.write_text(f'schema = "headgate/prices/v1"\n{size}')
    sized.run("plan", "--rate", "100", "--prices", str(path), "--mapper", "dsm", code=4)
    assert "its link has 0.01" in sized.err
