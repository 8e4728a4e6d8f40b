"""What the pages call of Apple's frameworks, beside PyObjC's tables: names, selectors, the number of arguments."""

import ast

import pytest
from apple import reference
from recipes import all_recipes

PAGES = ("how_to/apple.md", "how_to/pyobjc.md")
#: Module of PyObjC: where its names are.
FRAMEWORKS = {
    "AVFoundation": "AVFoundation", "CoreML": "CoreML", "CoreMedia": "CoreMedia", "Metal": "Metal",
    "MetalPerformanceShaders": "MetalPerformanceShaders", "Quartz": "CoreVideo",
    "MetalPerformanceShadersGraph": "MetalPerformanceShadersGraph",
}  # fmt: skip
#: PyObjC's tables have the selectors that it must be told something about.  These it reads from the classes, and they
#: are declared in the headers named.
PLAIN = {
    "addOutput:": "AVAssetReader.h",
    "URLAssetWithURL:options:": "AVAsset.h",
    "tracksWithMediaType:": "AVAsset.h",
    "assetReaderTrackOutputWithTrack:outputSettings:": "AVAssetReaderOutput.h",
    "featureValueWithMultiArray:": "MLFeatureValue.h",
    "setObject:atIndexedSubscript:": "MLMultiArray.h",
    "setOutputBackings:": "MLPredictionOptions.h",
    "placeholderWithShape:dataType:name:": "MPSGraphMemoryOps.h",
    "squareWithTensor:name:": "MPSGraphArithmeticOps.h",
    "runWithMTLCommandQueue:feeds:targetOperations:resultsDictionary:": "MPSGraph.h",
}


def modules_of(trees):
    """Which framework a name stands for: `import CoreML`, `import MetalPerformanceShaders as MPS`."""
    imports = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Import))
    names = {alias.asname or alias.name: alias.name for node in imports for alias in node.names}
    return {name: reference.tables(FRAMEWORKS[module]) for name, module in names.items() if module in FRAMEWORKS}


def is_known(tables, name):
    return name in tables.functions or name in tables.enums or name in tables.constants or name in tables.classes


@pytest.mark.parametrize("page", PAGES)
def test_each_name_and_selector_is_apple_s(page):
    trees = [ast.parse(block) for block in all_recipes(page)]
    modules = modules_of(trees)
    selectors = reference.selectors().union(PLAIN, *(tables.selectors for tables in modules.values()))
    names, called = set(), {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.add((node.value.id, node.attr))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.endswith("_")
            and not node.func.attr.startswith("_")
        ):
            called[node.func.attr.replace("_", ":")] = len(node.args)
    assert len(names) > 1 and len(called) > 1
    assert [name for name in names if not is_known(modules[name[0]], name[1])] == []
    assert called.keys() - selectors == set()
    assert {selector: count for selector, count in called.items() if selector.count(":") != count} == {}


def test_what_is_said_to_be_in_a_header_is_called_and_in_no_table():
    text = "".join(block for page in PAGES for block in all_recipes(page))
    assert [selector for selector in PLAIN if selector.replace(":", "_") + "(" not in text] == []
    tables = [reference.tables(framework) for framework in FRAMEWORKS.values()]
    assert PLAIN.keys() & set().union(*(table.selectors for table in tables)) == set()
