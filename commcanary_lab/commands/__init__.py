"""The verbs of the command line, one file per family: parse, call, print."""
