"""The examples in the docstrings of the public API run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import warpfactor as wf

FINDER = doctest.DocTestFinder(exclude_empty=True)
ROOMS = ("checks", "geometry", "io", "measure", "phantom", "recipebook", "registration", "show", "stages", "terms")


def modules():
    """The modules of the rooms that users meet."""
    for module in pkgutil.walk_packages(wf.__path__, "warpfactor."):
        if module.name.split(".")[1] in ROOMS:
            yield module.name


EXAMPLES = {
    example.name: example
    for name in modules()
    for example in FINDER.find(importlib.import_module(name))
    if example.examples
}


@pytest.fixture(scope="module", autouse=True)
def registered_once():
    """Examples that register the same phantom with the same recipe share the result, which is as it would be."""
    real, kept = wf.register, {}

    def register(fixed, moving, **options):
        key = (*(bytes(torch.as_tensor(image).numpy().data) for image in (fixed, moving)), repr(options))
        if key not in kept:
            kept[key] = real(fixed, moving, **options)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wf, "register", register)
        yield


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_does_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(EXAMPLES[name], out=said.append)
    assert runner.failures == 0, "".join(said)


def test_the_main_names_have_examples():
    """What a reader of the reference meets first."""
    shown = {name.removeprefix("warpfactor.") for name in EXAMPLES}
    assert {
        "measure",
        "registration.companions.Companions",
        "registration.folder.read_result",
        "registration.result.Registration",
        "registration.result.Registration.apply",
        "registration.result.Registration.apply_points",
        "registration.result.Registration.save",
        "registration.run.register",
    } <= shown
