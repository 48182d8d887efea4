"""Exports: traces and canaries in the formats of other tools."""

from commcanary_lab.export.chakra import export_chakra
from commcanary_lab.export.events_csv import export_events_csv
from commcanary_lab.export.nccl_tests import NcclTestsExport, export_nccl_tests
from commcanary_lab.export.param_basic import export_param
from commcanary_lab.export.param_et import export_param_et
from commcanary_lab.export.perfetto import export_perfetto
from commcanary_lab.export.result import Export, Skipped

__all__ = [
    "Export",
    "NcclTestsExport",
    "Skipped",
    "export_chakra",
    "export_events_csv",
    "export_nccl_tests",
    "export_param",
    "export_param_et",
    "export_perfetto",
]
