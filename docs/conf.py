"""How the documents become a site: `make docs` builds it, and the tests do without a warning."""

import inspect
import re

import anyorder

project = "anyorder"
author = "The anyorder authors"
release = anyorder.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "anyorder"
html_copy_source = False

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "inherited-members": False, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_use_rtype = False


SIZE = re.compile(r"\|(\w+)\|")
"""|e|, the size of a set, which reStructuredText takes for a substitution."""


def plain_words(app, what, name, obj, options, lines):  # noqa: ARG001, D103
    # Our docstrings write code in single backticks, which reStructuredText takes for references.
    for place, line in enumerate(lines):
        parts = line.replace("``", "`").split("`")
        parts[::2] = [SIZE.sub(r"\\|\1\\|", part) for part in parts[::2]]
        lines[place] = "``".join(parts)


def setup(app):  # noqa: D103
    app.connect("autodoc-process-docstring", plain_words, priority=400)  # before napoleon
    for name in dir(anyorder):  # imported lazily: autodoc has to find them all
        inspect.getdoc(getattr(anyorder, name))
