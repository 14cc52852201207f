"""Records of a run turned into tables, plots and one HTML file.

build       a run's folder -> report.html, summary.md, results.csv, flips.csv, classes.csv
answer      which int8 variant to ship, per model, threads and batch size
table       records -> a DataFrame with raw values; the cells that a reader sees
text        the terminal's table, a comparison as rows; summary is summary.md
flips       which answers flipped and which classes changed; gallery shows them as images
draws       how much the draw of the calibration examples matters
figures     which plots, and what they say; plots draws them as inline SVG
page        what the HTML page shows; html renders it with page.jinja, page.css and page.js
"""
