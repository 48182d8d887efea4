"""Traffic matrices: attribution algorithms, parallelism layout, comparison and files."""

from commcanary_lab._callable import make_callable
from commcanary_lab.traffic.attribution import Algorithm, Calls, Links, algorithms, register
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.traffic.cells import Link
from commcanary_lab.traffic.difference import TrafficDifference
from commcanary_lab.traffic.layout import Layout
from commcanary_lab.traffic.layout_file import parse_layout, read_layout
from commcanary_lab.traffic.matrix import CellDifference, TrafficMatrix
from commcanary_lab.traffic.nodes import NodeMatrix
from commcanary_lab.traffic.parts import Part
from commcanary_lab.traffic.write import write_matrix

__all__ = [
    "Algorithm",
    "Calls",
    "CellDifference",
    "Layout",
    "Link",
    "Links",
    "NodeMatrix",
    "Part",
    "TrafficDifference",
    "TrafficMatrix",
    "algorithms",
    "build_matrix",
    "parse_layout",
    "read_layout",
    "register",
    "write_matrix",
]

make_callable(__name__, "commcanary_lab.traffic.build", "build_matrix")
