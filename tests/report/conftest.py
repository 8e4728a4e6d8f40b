"""A report of what a test runs."""

import pytest

import _metal_dlpack_pytest as plugin
import softmetal
from softmetal import report
from softmetal.report import silences


@pytest.fixture
def reported(metal_settings, request):
    """A function: the report of what `run` runs, with kernels checked; what it finds is wanted."""
    metal_settings(kernel_check="report", validation_mode="log")

    def reported(run):
        report.start()
        try:
            run()
            assert softmetal.wait_idle()
        finally:
            result = report.end()
            request.node.stash[plugin._reports_before] = softmetal.reports()
        return result

    yield reported
    silences.forget()
