"""What a release says of itself: its page on the package index, its wheels, and the files that a public project has."""

import re
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from email import message_from_string
from email.message import Message
from types import SimpleNamespace

import pytest
import try_package
from checkouts import checkout, setup
from children import run_child
from places import DOCS, EXAMPLES, ROOT, TOOLS

import metal_dlpack as md

pytestmark = pytest.mark.needs_no_sanitizer

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEELS = PROJECT["tool"]["cibuildwheel"]
#: The licence of a wheel that carries libobjc.
BOTH = "Apache-2.0 AND GPL-3.0-or-later WITH GCC-exception-3.1"
ITS_FILES = ["LICENSE", "LICENSE.libobjc", "LICENSE.libobjc-exception"]
ADDRESS = "https://example.org/owner/metal_dlpack"
TARGET = re.compile(r"\]\(([^)]*)\)|^\[[^\]]+\]: *(\S+)|(?:src|href)=\"([^\"]*)\"", re.MULTILINE)


def text_of(page):
    """Without its blocks of code."""
    return "".join(page.split("```")[::2])


def targets(page):
    return ["".join(groups) for groups in TARGET.findall(text_of(page))]


def metadata(folder, repository):
    """PKG-INFO as a build writes it, where the repository is published there."""
    done = setup(folder, "egg_info", "--egg-base", ".", METAL_DLPACK_REPOSITORY=repository)
    assert done.returncode == 0, done.stderr
    return message_from_string((folder / "metal_dlpack.egg-info" / "PKG-INFO").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkout(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def published(folder):
    return metadata(folder, ADDRESS + "/")


@pytest.fixture(scope="module")
def unpublished(folder, published):
    return metadata(folder, "")


def test_the_page_on_the_index_is_readme_with_links_that_lead_somewhere(published):
    assert published["Description-Content-Type"] == "text/markdown"
    readme, page = (ROOT / "README.md").read_text(), published.get_payload()
    assert f"git clone {ADDRESS} " in page
    readme_there = readme.replace("https://HOST/OWNER/metal_dlpack", ADDRESS)
    assert re.sub(r"\]\([^)]*\)", "", page) == re.sub(r"\]\([^)]*\)", "", readme_there)
    local = [target for target in targets(readme) if not target.startswith("https://")]
    ours = [target for target in targets(page) if target.startswith(ADDRESS)]
    assert len(local) == len(ours) > 10
    assert all(target.startswith("https://") for target in targets(page))
    links = dict(line.split(", ") for line in published.get_all("Project-URL"))
    assert links.pop("Source") == ADDRESS
    assert links.pop("Issues") == f"{ADDRESS}/issues"
    for target in [*ours, *(link.replace("/tree/", "/blob/") for link in links.values())]:
        image = f"{ADDRESS}/raw/v{md.__version__}/"
        path = target.removeprefix(image).removeprefix(image.replace("/raw/", "/blob/")).partition("#")[0]
        assert (ROOT / path).exists(), target


def test_a_heading_an_image_and_code_are_told_apart(folder, published, unpublished):
    (folder / "README.md").write_text("[a](#b) ![c](docs/d.svg) [e](https://f)\n```\n[g](h)\n```\n[i](j.md)\n")
    place = f"{ADDRESS}/{{}}/v{md.__version__}".format
    assert metadata(folder, ADDRESS).get_payload() == (
        f"[a]({place('blob')}/README.md#b) ![c]({place('raw')}/docs/d.svg) [e](https://f)\n"
        f"```\n[g](h)\n```\n[i]({place('blob')}/j.md)\n"
    )


def test_without_an_address_nothing_is_linked(unpublished):
    assert unpublished["Project-URL"] is None
    assert unpublished["Home-page"] is None
    assert all(target.startswith("https://") for target in targets(unpublished.get_payload()))
    assert "ten minutes of it help" in unpublished.get_payload()


def test_the_judge_is_required_in_the_same_version_and_taken_from_beside_a_checkout(folder, published, unpublished):
    for_all = [needed for needed in published.get_all("Requires-Dist") if "extra ==" not in needed]
    assert (for_all, published["Version"]) == ([f"dlpack-conformance=={md.__version__}"], md.__version__)
    assert f"dlpack-conformance@ {(folder / 'kit').as_uri()}" in map(spelled, unpublished.get_all("Requires-Dist"))


def spelled(requirement):
    return requirement.replace(" @", "@")


def test_the_address_stands_in_no_file():
    """It is said by the workflow that publishes: a fork says its own."""
    for path in (ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "CITATION.cff", ROOT / "SECURITY.md"):
        assert not re.search(r"github\.com/[\w-]+/metal_dlpack", path.read_text()), path


def test_wheels_are_built_for_the_pythons_that_are_promised(published):
    prefix = "Programming Language :: Python :: "
    promised = {name.removeprefix(prefix) for name in published.get_all("Classifier") if name.startswith(prefix + "3.")}
    assert {f"cp{version.replace('.', '')}-*" for version in promised} == set(WHEELS["build"])
    assert published["Requires-Python"] == ">=" + min(promised, key=lambda version: int(version[2:]))
    assert f"{min(promised)} to {max(promised)}" in (DOCS / "versions.md").read_text()


def test_wheels_are_for_what_the_pages_say(published):
    versions = (DOCS / "versions.md").read_text()
    assert WHEELS["macos"]["archs"] == ["arm64"]
    target = WHEELS["macos"]["environment"]["MACOSX_DEPLOYMENT_TARGET"]
    assert f'MACOS_TARGET = "{target}"' in (ROOT / "setup.py").read_text()
    assert f"| macOS | {float(target):g} or later" in versions
    (glibc,) = {WHEELS["linux"][f"manylinux-{arch}-image"] for arch in ("x86_64", "aarch64")}
    assert f"wheels for glibc {glibc.removeprefix('manylinux_').replace('_', '.')} or later, none for musl" in versions
    assert WHEELS["skip"] == ["*-musllinux_*"]


def test_no_wheel_is_free_threaded_while_the_module_does_not_declare_it():
    declares = "Py_mod_gil" in (ROOT / "src" / "module" / "module.c").read_text()
    assert declares == any(name.startswith("cp314t") for name in WHEELS["build"])


def test_what_is_built_of_the_sources_alone_has_our_licence(published):
    assert published["License-Expression"] == "Apache-2.0"
    assert published.get_all("License-File") == ["LICENSE"]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="wheels for a Mac carry no library")
def test_a_wheel_for_linux_brings_libobjc_and_its_licence(tmp_path):
    steps = WHEELS["linux"]["before-all"]
    assert "dnf --assumeyes install gcc-objc" in steps
    assert "sh {package}/tools/libobjc_licence {package}" in steps
    folder = checkout(tmp_path)
    subprocess.run(["sh", TOOLS / "libobjc_licence", folder], check=True)
    facts = metadata(folder, ADDRESS)
    assert facts["License-Expression"] == BOTH
    assert facts.get_all("License-File") == ITS_FILES
    assert "GNU GENERAL PUBLIC LICENSE\n                       Version 3" in (folder / "LICENSE.libobjc").read_text()
    exception = (folder / "LICENSE.libobjc-exception").read_text()
    assert exception.startswith("GCC RUNTIME LIBRARY EXCEPTION\n\nVersion 3.1")
    assert exception.rstrip().endswith("\nrequirements of the license of GCC."), "and no other licence of GCC's"
    assert BOTH in (DOCS / "versions.md").read_text()


@pytest.mark.parametrize(
    ("carried", "expression", "files", "refused"),
    [
        (None, "Apache-2.0", ["LICENSE"], None),
        ("libobjc", BOTH, ITS_FILES, None),
        ("libobjc", "Apache-2.0", ITS_FILES, "not named"),
        ("libobjc", BOTH, ITS_FILES[:2], "is not in"),
        ("libstdc++", BOTH, ITS_FILES, "nobody has looked"),
    ],
)
def test_a_library_in_a_wheel_without_its_licence_is_refused(
    carried, expression, files, refused, tmp_path, monkeypatch
):
    if carried:
        (tmp_path / "metal_dlpack.libs").mkdir()
        (tmp_path / "metal_dlpack.libs" / f"{carried}-6d4ff34a.so.4").touch()
    facts = Message()
    facts["License-Expression"] = expression
    for name in files:
        facts["License-File"] = name
    monkeypatch.setattr(try_package, "md", SimpleNamespace(__file__=str(tmp_path / "metal_dlpack" / "__init__.py")))
    monkeypatch.setattr(try_package.importlib.metadata, "metadata", lambda name: facts)
    with pytest.raises(SystemExit, match=refused) if refused else nullcontext():
        try_package.read_the_licence()


def test_the_compiler_of_the_wheels_for_linux_knows_the_attributes_of_properties():
    """It is GCC 8, whose Objective-C does not know the word atomic.  That a property is atomic is the default."""
    for path in (ROOT / "src").rglob("*.[hm]"):
        assert not re.search(r"@property *\([^)]*\batomic\b", path.read_text()), path


@pytest.mark.long
def test_the_installed_package_is_tried_by_a_script_that_works():
    script = WHEELS["test-command"].removeprefix("python {project}/")
    done = run_child(ROOT / script)  # here it is the checkout's package, and the script says so
    assert done.returncode != 0
    assert "the package of the checkout was imported" in done.stderr
    run_child("import try_package as t; t.share(); t.compute()", check=True, PYTHONPATH=str(TOOLS))


@pytest.mark.long
@pytest.mark.needs_softmetal
@pytest.mark.needs_torch
def test_it_trains_with_torch():
    run_child("import try_package as t; t.train()", check=True, PYTHONPATH=str(TOOLS))


def test_no_page_installs_what_no_index_has_yet():
    """An extra of the installed package can be asked for: 'metal_dlpack[kernels]' is found where it is."""
    for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *EXAMPLES.rglob("*.md")]:
        for line in re.findall(r"pip install.*", path.read_text()):
            assert not re.search(r" metal_dlpack(?=[\s\"'`]|$)", line), f"{path.name}: {line}"
