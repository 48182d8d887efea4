"""A workspace: a folder of plain artifact files that the workbench and the command line share."""

from commcanary_lab.workspace.artifact import Artifact
from commcanary_lab.workspace.cache import ResultCache
from commcanary_lab.workspace.folder import Workspace
from commcanary_lab.workspace.index import INDEX_FILE, Index
from commcanary_lab.workspace.recognise import Recognised, recognise
from commcanary_lab.workspace.staging import Outcome, Staging
from commcanary_lab.workspace.trash import Trashed

__all__ = ["INDEX_FILE", "Artifact", "Index", "Outcome", "Recognised", "ResultCache", "Staging", "Trashed", "Workspace", "recognise"]
