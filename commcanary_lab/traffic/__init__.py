"""Traffic matrices: attribution algorithms, parallelism layout, comparison and files."""

from commcanary_lab._callable import make_callable
from commcanary_lab.layout import Layout, parse_layout, read_layout
from commcanary_lab.traffic.attribution import Algorithm, Calls, Links, algorithms, register
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.traffic.cells import Link
from commcanary_lab.traffic.crossing import Crossing
from commcanary_lab.traffic.diagnose import Diagnosis, GroupDiagnosis, diagnose
from commcanary_lab.traffic.difference import TrafficDifference
from commcanary_lab.traffic.fabric import fabric
from commcanary_lab.traffic.fabric_verdict import FabricVerdict, OrderVerdict, Utilisation
from commcanary_lab.traffic.infer import InferredGroups, InferredLayout, infer_layout
from commcanary_lab.traffic.matrix import CellDifference, TrafficMatrix
from commcanary_lab.traffic.model_shape import ModelShape, parse_shape
from commcanary_lab.traffic.moe import MoeWhatIf, moe_what_if
from commcanary_lab.traffic.nodes import NodeMatrix
from commcanary_lab.traffic.order import RingOrder
from commcanary_lab.traffic.parts import Part
from commcanary_lab.traffic.placement import Placement
from commcanary_lab.traffic.placement_search import PlacementSearch, search_placement
from commcanary_lab.traffic.predict import predict, predicted_trace
from commcanary_lab.traffic.sources import SourceComparison, SourceRow, compare_sources
from commcanary_lab.traffic.windows import Window, in_window, windows
from commcanary_lab.traffic.write import write_matrix

__all__ = [
    "Algorithm",
    "Calls",
    "CellDifference",
    "Crossing",
    "Diagnosis",
    "FabricVerdict",
    "GroupDiagnosis",
    "InferredGroups",
    "InferredLayout",
    "Layout",
    "Link",
    "Links",
    "ModelShape",
    "MoeWhatIf",
    "NodeMatrix",
    "OrderVerdict",
    "Part",
    "Placement",
    "PlacementSearch",
    "RingOrder",
    "SourceComparison",
    "SourceRow",
    "TrafficDifference",
    "TrafficMatrix",
    "Utilisation",
    "Window",
    "algorithms",
    "build_matrix",
    "compare_sources",
    "diagnose",
    "fabric",
    "in_window",
    "infer_layout",
    "moe_what_if",
    "parse_layout",
    "parse_shape",
    "predict",
    "predicted_trace",
    "read_layout",
    "register",
    "search_placement",
    "windows",
    "write_matrix",
]

make_callable(__name__, "commcanary_lab.traffic.build", "build_matrix")
