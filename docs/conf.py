"""Sphinx configuration: ``sphinx-build -W docs docs/_build/html`` (extra ``docs``)."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import data_pages  # noqa: E402

import tallytree  # noqa: E402

os.environ.setdefault("MPLBACKEND", "Agg")

project = "tallytree"
author = "the tallytree developers"
copyright = "the tallytree developers"
version = release = tallytree.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without a network
    "executed",  # what the code of a page prints
    "reference",  # which members of a class have a place in the reference
    "data_pages",  # what gallery pages on real data print, where the data is not
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = [
    "_build",
    "gallery/**/*.py",
    "gallery/**/*.ipynb",
    "data_pages/**",
    "**/sg_execution_times.rst",
    "sg_execution_times.rst",
    "**/*_table.md",  # written by benchmarks, included in pages
    "*_table.md",
    "benchmark_tables.md",
]
templates_path = ["_templates"]
nitpicky = True
# Objects of other libraries and words for shapes are not links.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(numpy|np|scipy|pandas|torch|jax|numpyro|sklearn|matplotlib|collections|typing|os)\..*",
    ),
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# -- API reference -----------------------------------------------------------------------------------------------------

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False
# What numpydoc says about form; that no section is missing, tests/test_docstrings.py checks.
numpydoc_validation_checks = {
    *("GL03", "GL05", "GL06", "GL07", "GL08", "GL10", "SS01", "SS02", "SS03", "SS04", "YD01"),
    *("PR02", "PR03", "PR04", "PR05", "PR07", "PR08", "PR09", "PR10", "RT02", "RT03", "RT04", "RT05"),
}
numpydoc_validation_exclude = {r"\.Modes\."}  # fields of a named tuple: their sentences are Python's

# -- Pages -------------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "tallytree"
html_static_path = ["_static"]
html_css_files = ["tallytree.css"]
html_js_files = ["gallery.js"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "tallytree"},
    "github_url": "https://github.com/tallytree/tallytree",
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_sidebars = {
    "index": [],
    "start/index": [],
    "changelog": [],
    "which_model": [],
    "benchmarks": [],
    "scaling": [],
    "reproduction": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# -- Gallery -----------------------------------------------------------------------------------------------------------

SECTIONS = ("sums", "counts", "overlapping", "learning")


sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "examples" / "gallery")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": data_pages.scripts_to_run(),
    "reset_modules": ("gallery_look.reset",),
    "remove_config_comments": True,
    "show_memory": False,
    "download_all_examples": False,
    "plot_gallery": "True",
    "subsection_order": [f"../examples/gallery/{name}" for name in SECTIONS],
    "within_subsection_order": "FileNameSortKey",
    "nested_sections": False,
    "min_reported_time": 1000,
    "show_signature": False,
    "abort_on_example_error": True,
    "matplotlib_animations": False,
    "image_scrapers": ("matplotlib",),
    "capture_repr": ("_repr_html_", "__repr__"),
    "backreferences_dir": "gallery/uses",
    "doc_module": ("tallytree",),
    "inspect_global_variables": False,
}
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)
