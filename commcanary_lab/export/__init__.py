"""Exports: traces and canaries in the formats of other tools."""

from commcanary_lab.export.nccl_tests import NcclTestsExport, export_nccl_tests

__all__ = ["NcclTestsExport", "export_nccl_tests"]
