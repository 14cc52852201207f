"""Records of a run turned into tables, plots and one HTML file.

build               a run's folder -> report.html, summary.md, results.csv, flips.csv, classes.csv
frame               a run -> tidy DataFrames of its cases, calls and layers
columns             every column of a case, once: value, unit, meaning, titles, hint, cell
cells               a row of a table of cases, and how a figure is written in a cell
ruling              what the decisions say of each case, in a few words
names               variants and backends as a reader calls them
recipes             how a variant was made, by what differs from the default
palette             one look for each backend, mode and verdict
terminal            the table that `qbench run` prints
summary             summary.md, for a pull request
markdown            parts of a document that stays under a number of characters
comparison          two runs side by side
history             the runs of a suite over time, with change points
history_charts      a quantity over runs as inline SVG
history_page        history.html, rendered with history.jinja, and history.csv
run_warnings        what to know before any figure
flips               which answers flipped and which classes changed
flip_gallery        the examples that flipped, as images
calibration_seeds   how much the draw of the calibration examples matters
layers              layer by layer: what runs in int8, and what is farthest from fp32
figures             which pictures a report shows
plots               pictures, each a function of a frame, with its caption and its data as a table
overview            the whole run in a sentence
cards               the first screen: one card a setting
matrix              many settings at a glance
case_table          the one table of all cases, and what else was measured of each
failures            cases without a result, by reason
method              how it was measured, and the command that repeats it
page                what the HTML page shows
html                the page rendered with page.jinja, page.css and page.js
"""
