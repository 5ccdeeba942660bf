"""Recipes are data: printable, changeable by name, saved and loaded without loss."""

import json

import pytest
import torch

import warpfactor as wf
from warpfactor.cli.options import parse_settings
from warpfactor.phantom import phantom
from warpfactor.recipebook import toml
from warpfactor.recipebook.files import read_recipe, write_recipe

NAMES = [
    "default",
    "brain",
    "lung",
    "abdomen",
    "multimodal",
    "paper",
    "fast",
    "accurate",
    "symmetric",
    "velocity",
    "longitudinal",
    "rigid",
    "affine",
]


def test_all_names_are_there():
    assert list(wf.recipes()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_survives_json_and_toml(name):
    recipe = wf.recipe(name)
    assert recipe.description
    assert wf.Recipe.from_dict(json.loads(json.dumps(recipe.to_dict(), allow_nan=False))) == recipe
    assert wf.Recipe.from_dict(toml.parse(recipe.to_toml())) == recipe


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_recipe_file_is_read_back(tmp_path, suffix):
    recipe = wf.recipe("paper")
    write_recipe(recipe, tmp_path / f"mine{suffix}")
    assert wf.recipe(str(tmp_path / f"mine{suffix}")) == recipe


def test_what_a_file_leaves_out_takes_its_default(tmp_path):
    (tmp_path / "short.toml").write_text('[deformable]\nmetric = "mi"\nsigma_grad = 2\n')
    recipe = wf.recipe(tmp_path / "short.toml")
    assert recipe.name == "short"
    assert recipe.linear == ()
    assert recipe.deformable == wf.Deformable(metric=wf.MI(), sigma_grad=2.0)


def test_settings_are_replaced_together():
    changed = wf.recipe("default").replace(
        {
            "deformable.levels": [2, 1],
            "deformable.iterations": [5, 4],
            "deformable.metric": "mi",
            "deformable.metric.bins": 16,
            "deformable.optimizer": "adam",
            "linear.dof": "rigid",
            "linear.0.window": 9,
        },
        name="mine",
    )
    assert changed.name == "mine"
    assert changed.deformable.levels == (2, 1)
    assert changed.deformable.iterations == (5, 4)
    assert changed.deformable.metric == wf.MI(bins=16)
    assert changed.deformable.optimizer.name == "adam"
    assert changed.linear[0].dof == "rigid"
    assert changed.linear[0].window == 9
    assert wf.recipe("default").deformable.levels == (4, 2, 1)


def test_stages_are_switched_off_by_none():
    assert wf.recipe("default").replace({"deformable": "none"}).deformable is None
    assert wf.recipe("default").replace({"linear": "none"}).linear == ()
    with pytest.raises(wf.InputError, match="neither a linear nor a deformable"):
        wf.recipe("default").replace({"linear": None, "deformable": None})


def test_a_custom_loss_can_be_set_but_not_loaded():
    changed = wf.recipe("default").replace({"deformable.metric": wf.Custom(lambda a, b: (a - b).square().mean())})
    assert changed.replace({"deformable.step": 0.5}).deformable.metric.name == "custom"
    with pytest.raises(wf.InputError, match="pass it from Python"):
        wf.Recipe.from_dict(changed.to_dict())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("deformable.sigma_gard", 1, "Unknown setting of deformable 'sigma_gard'; did you mean 'sigma_grad'"),
        ("deformabel", None, "did you mean 'deformable'"),
        ("deformable.metric", "lnc", "Unknown metric 'lnc'; did you mean 'lncc'"),
        ("deformable.damping", "turst", "Unknown damping 'turst'; did you mean 'trust'"),
        ("deformable.metric", 3, "give the name of a metric"),
        ("deformable.metric", torch.dist, r"deformable.metric: a function is given as wf\.Custom\(dist\)"),
        ("linear.metric", wf.Custom(torch.dist), "a custom loss is for deformable.metric"),
        ("deformable.metric.bins", 32, "Unknown setting of deformable.metric 'bins'"),
        ("deformable.step", "big", "deformable.step = 'big': give a number"),
        ("deformable.convergence.window", 2.5, "give a whole number"),
        ("deformable.metric.symmetric", 1, "give true or false"),
        ("deformable.units", 1, "give a word"),
        ("deformable.sigma_grad.x", 1, "is a single value"),
        ("deformable.optimizer", "adma", "Unknown optimizer 'adma'"),
        ("deformable.convergence", 3, "must be a table of settings"),
        ("deformable.metric", "ncc", "Metric 'ncc' is for linear stages only; deformable takes lncc, mse, mi"),
        ("linear.1.dof", "rigid", "counted from 0"),
        ("linear.dof", "rigd", "rigid"),
        ("name", None, "give a word"),
    ],
)
def test_a_wrong_change_is_named(key, value, message):
    with pytest.raises(wf.InputError, match=message):
        wf.recipe("default").replace({key: value})


def test_a_setting_of_an_optimizer_is_checked_and_belongs_to_that_optimizer():
    with pytest.raises(wf.InputError, match="give 2 values"):
        wf.recipe("default").replace({"deformable.optimizer": "adam", "deformable.optimizer.betas": [0.9]})
    with pytest.raises(wf.InputError, match=r"Unknown setting of deformable\.optimizer 'betas'; it has no settings"):
        wf.recipe("default").replace({"deformable.optimizer.betas": [0.9, 0.99]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("deformable.levels", [3]),
        ("deformable.levels", [8, 4, 2, 1]),
        ("deformable.iterations", [7, 5]),
        ("deformable.iterations", [9, 8, 7, 6, 5]),
        ("linear.levels", [4, 2]),
    ],
)
def test_levels_and_iterations_are_set_together_and_the_example_works(key, value):
    with pytest.raises(wf.InputError, match="one iteration limit per level") as caught:
        wf.recipe("default").replace({key: value})
    example = str(caught.value).split("for instance ")[1].removesuffix(".").split(" and ")
    changes = parse_settings(example)
    assert {name.rpartition(".")[2] for name in changes} == {"levels", "iterations"}
    recipe = wf.recipe("default").replace(changes)
    stage = recipe.deformable if key.startswith("deformable") else recipe.linear[0]
    assert list(getattr(stage, key.split(".")[1])) == value


def test_a_file_with_levels_alone_names_the_iterations(tmp_path):
    (tmp_path / "short.toml").write_text("[deformable]\nlevels = [2, 1]\n")
    with pytest.raises(wf.FileError, match=r"levels=2,1 does not fit deformable\.iterations=.* set both"):
        wf.recipe(tmp_path / "short.toml")


def test_a_missing_stage_has_no_settings():
    with pytest.raises(wf.InputError, match="switched off"):
        wf.recipe("rigid").replace({"deformable.step": 1})
    with pytest.raises(wf.InputError, match="no linear stage"):
        wf.recipe("default").replace({"linear": None}).replace({"linear.dof": "rigid"})


def test_an_unknown_name_brings_a_suggestion():
    with pytest.raises(wf.InputError, match="Unknown recipe 'brian'; did you mean 'brain'"):
        wf.recipe("brian")
    with pytest.raises(wf.InputError, match="use one of default"):
        wf.recipe("xyz")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("broken.toml", "deformable = [", "cannot be read as a recipe"),
        ("broken.json", "{", "cannot be read as a recipe"),
        ("list.json", "[1]", "A recipe is a table of settings"),
        ("wrong.toml", "[deformable]\nspeed = 3\n", "Unknown setting of recipe.deformable 'speed'"),
        ("part.toml", "deformable = 3\n", "must be a table of settings"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(wf.FileError, match=message) as caught:
        read_recipe(tmp_path / name)
    assert name in str(caught.value)


def test_a_recipe_is_written_as_toml_or_json_only(tmp_path):
    with pytest.raises(wf.FileError, match=r"\.toml or \.json"):
        write_recipe(wf.recipe("fast"), tmp_path / "mine.yaml")
    with pytest.raises(wf.FileError, match="no such recipe file"):
        wf.recipe(tmp_path / "none.toml")


def grid(*shape):
    return wf.Grid.from_spacing(shape)


def test_levels_and_iterations_follow_from_the_size():
    warp = wf.recipe("default").for_grid(grid(180, 180, 180)).deformable
    assert (warp.levels, warp.iterations) == ((4, 2, 1), (60, 30, 12))
    large = wf.recipe("default").for_grid(grid(300, 400, 300)).deformable
    assert (large.levels, large.iterations) == ((16, 8, 4, 2, 1), (60, 60, 60, 30, 12))
    small = wf.recipe("default").for_grid(grid(90, 90, 90)).deformable
    assert (small.levels, small.iterations) == ((2, 1), (30, 24)), "twice as many, but no more than the coarsest has"
    assert wf.recipe("default").for_grid(grid(256, 256)).deformable.levels == (8, 4, 2, 1)
    assert wf.recipe("lung").for_grid(grid(90, 90, 90)).deformable == wf.recipe("lung").deformable
    assert wf.recipe("affine").for_grid(grid(90, 90, 90)).deformable is None


def test_settings_per_level_are_those_of_the_finest_levels():
    warp = wf.recipe("default").replace({"deformable.metric.size": [3, 5, 7]})
    assert warp.for_grid(grid(90, 90, 90)).deformable.metric.size == (5, 7)
    assert warp.for_grid(grid(300, 400, 300)).deformable.metric.size == (3, 3, 3, 5, 7)


@pytest.mark.parametrize(
    "change",
    [
        {"deformable.levels": [3, 2, 1]},
        {"deformable.iterations": [9, 8, 7]},
        {"deformable.metric": "mse", "deformable.levels": [2, 1], "deformable.iterations": [5, 4]},
    ],
)
def test_levels_or_iterations_that_are_set_hold_for_every_size(change):
    given = wf.recipe("default").replace(change)
    for size in (40, 400):
        warp = given.for_grid(grid(size, size, size)).deformable
        assert (warp.levels, warp.iterations) == (given.deformable.levels, given.deformable.iterations)


def test_slices_across_contrasts_have_settings_of_their_own():
    default = wf.recipe("default")
    flat, deep = (default.for_grid(grid(*shape)).for_contrasts(same=False) for shape in ((64, 64), (64, 64, 64)))
    assert (flat.deformable, deep.deformable) == (default.across_planar, default.across)
    changed = default.replace({"deformable.step": 0.7})
    assert [warp.step for warp in (changed.deformable, changed.across, changed.across_planar)] == [0.7] * 3
    assert changed.across_planar.sigma_warp == default.across_planar.sigma_warp
    assert default.replace(deformable="none").for_grid(grid(64, 64)).deformable is None


def test_recipes_of_earlier_results_are_read():
    """Version 0.1 wrote `planar` and `small`, null because the settings that were used are in `deformable`."""
    assert wf.Recipe.from_dict({**wf.recipe("lung").to_dict(), "planar": None, "small": None}) == wf.recipe("lung")


@pytest.mark.parametrize("shape", [(1, 80, 72), (24, 28, 24)])
def test_a_result_has_the_settings_that_were_used(shape):
    made = phantom(shape, displacement_vox=2.0)
    arrays = [array[0] if shape[0] == 1 else array for array in (made.fixed, made.moving)]
    images = [wf.Image.from_array(array) for array in arrays]
    found = wf.register(*images, recipe="fast", overrides={"linear.iterations": [2, 2, 1]})
    assert found.recipe.across is None and found.recipe.across_planar is None
    assert (found.recipe.deformable.coarsest, found.recipe.deformable.meant_for) == (0, 0)
    assert len(found.recipe.deformable.iterations) == len(found.recipe.deformable.levels)
    again = wf.register(*images, recipe=found.recipe)
    assert torch.equal(again.warp.displacement, found.warp.displacement)


def test_toml_keeps_lists_on_one_line_and_leaves_out_none():
    data = {
        "a": [1, 2.5],
        "s": ["x, [", 'y"\n'],
        "n": None,
        "t": {"empty": [], "deep": [[1], [2, 3]]},
        "l": [{"b": True}],
    }
    text = toml.write(data)
    assert "a = [1, 2.5]\n" in text and "null" not in text
    assert toml.parse(text) == {key: value for key, value in data.items() if key != "n"}


def test_smooth_motion_is_left_to_the_settings_for_it():
    """The limit on the length of the force decides; what was used is recorded, and not asked for again."""
    made = phantom((24, 28, 24), displacement_vox=2.0)
    images = [wf.Image.from_array(array) for array in (made.fixed, made.moving)]
    quick = {"linear.iterations": [2, 2, 1], "deformable.levels": (2, 1), "deformable.iterations": (4, 2)}
    for limit, tail in ((1e-9, (0.5, 4.0)), (1e9, (0.3, 4.0))):
        found = wf.register(*images, overrides={**quick, "deformable.broad_from": limit})
        assert found.recipe.broad is None
        assert (found.recipe.deformable.broad_from, found.recipe.deformable.tail) == (0.0, tail)
        assert [stage.name for stage in found.history] == ["affine", "deformable"]
        assert found.history[-1].cost_after < found.history[-1].cost_before
        again = wf.register(*images, recipe=found.recipe)
        assert torch.equal(again.warp.displacement, found.warp.displacement)


@pytest.mark.parametrize("method", ["greedy", "symmetric"])
def test_a_stage_without_settings_for_smooth_motion_goes_on(method):
    made = phantom((20, 24, 20), displacement_vox=2.0)
    changes = {"deformable.broad_from": 1e-9, "deformable.method": method, "deformable.levels": (2, 1)}
    recipe = wf.recipe("brain").replace({**changes, "deformable.iterations": (4, 2), "linear.iterations": [2, 2, 1]})
    found = wf.register(*(wf.Image.from_array(array) for array in (made.fixed, made.moving)), recipe=recipe)
    assert found.history[-1].kept
