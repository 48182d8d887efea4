"""A workspace: a folder of plain artifact files that the workbench and the command line share."""

from commcanary_lab.workspace.artifact import Artifact
from commcanary_lab.workspace.cache import ResultCache
from commcanary_lab.workspace.folder import Workspace
from commcanary_lab.workspace.recognise import Recognised, recognise

__all__ = ["Artifact", "Recognised", "ResultCache", "Workspace", "recognise"]
