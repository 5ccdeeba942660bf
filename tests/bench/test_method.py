"""Methods are read as they are written, change what they say, and say what is wrong before anything runs."""

import importlib.util
from pathlib import Path

import pytest

import warpfactor as wf
from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.peers import PEERS
from warpfactor.bench.run.method import OURS, Method, parse_method, parse_methods
from warpfactor.errors import InputError, WarpfactorError
from warpfactor.recipebook.files import write_recipe
from warpfactor.recipebook.recipe import Recipe

CASE = BenchCase("x", Path("a"), Path("b"), recipe="lung")


def test_a_list_of_methods_needs_no_quotes():
    text = "default,fast+deformable.iterations=3,2,1,adam=default+deformable.optimizer=adam+deformable.step=0.25,demons"
    methods = parse_methods(text)
    assert [(m.label, m.base, m.changes) for m in methods] == [
        ("default", "default", {}),
        ("fast+deformable.iterations=3,2,1", "fast", {"deformable.iterations": [3, 2, 1]}),
        ("adam", "default", {"deformable.optimizer": "adam", "deformable.step": 0.25}),
        ("demons", "demons", {}),
    ]
    assert [m.tool for m in methods] == [OURS, OURS, OURS, "demons"]


def test_settings_are_those_of_the_changed_recipe():
    found = parse_method("x=default+deformable.iterations=[3,2,1]+deformable.damping.initial=1e+2").settings_for(CASE)
    expected = wf.recipe("default").replace({"deformable.iterations": (3, 2, 1), "deformable.damping.initial": 100.0})
    assert Recipe.from_dict({"name": "default", **found}) == Recipe.from_dict(
        {**expected.to_dict(), "name": "default", "description": ""}
    )


def test_own_is_the_recipe_of_the_case():
    assert parse_method("own").settings_for(CASE) == parse_method("lung").settings_for(CASE)


def test_a_recipe_file_and_a_recipe_made_in_python(tmp_path):
    made = wf.recipe("fast").replace({"deformable.step": 0.4})
    write_recipe(made, tmp_path / "mine.toml")
    from_file = parse_method(f"{tmp_path / 'mine.toml'}").settings_for(CASE)
    assert from_file == Method("mine", "", {}, recipe=made).settings_for(CASE)
    assert from_file["deformable"]["step"] == 0.4


def test_settings_of_a_peer_are_changed_as_text():
    found = parse_method("long=greedy+iterations=100x100x50+radius=3").settings_for(CASE)
    assert found["iterations"] == "100x100x50" and found["radius"] == "3"
    assert found["affine_iterations"] == PEERS["greedy"].settings["affine_iterations"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("elastix", "Unknown method 'elastix'; use one of"),
        ("defualt", "Unknown method 'defualt'; did you mean 'default'"),
        ("default,default", "Two methods have the label 'default'"),
        ("=default", "write NAME"),
        ("default+step", "'step' is not a setting"),
        ("", "No method"),
    ],
)
def test_methods_that_cannot_be_read(text, words):
    with pytest.raises(InputError, match=words):
        parse_methods(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("default+deformable.stp=1", "Unknown setting of deformable 'stp'"),
        ("default+deformable.step=quick", "give a number"),
        ("demons+iteration=3", "Unknown setting of demons 'iteration'; did you mean 'iterations'"),
        ("nowhere/x.toml", "there is no such recipe file"),
    ],
)
def test_wrong_settings_are_found_before_anything_runs(text, words):
    with pytest.raises(WarpfactorError, match=words):
        parse_method(text).check([CASE])


def test_a_recipe_of_the_table_that_does_not_exist_is_found():
    with pytest.raises(InputError, match="Unknown recipe 'lnug'"):
        parse_method("own").check([CASE, BenchCase("y", Path("a"), Path("b"), recipe="lnug")])


def test_a_missing_peer_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs antspyx.*pip install '\.\[peers\]'"):
        parse_method("ants-syn").check([CASE])


def test_a_tool_without_masks_refuses_them():
    with pytest.raises(InputError, match="does not support masks"):
        parse_method("demons").check([CASE], masks=True)
