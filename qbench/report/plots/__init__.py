"""Pictures of a run: each is a function of a frame of ``qbench.load`` and returns a matplotlib figure; its module also
says what the picture shows, in words and as a table.

canvas     sizes, colours, text that fits
scale      where an axis begins and ends; outliers at its edge
cases      what a frame must have, what is read of it, and which cases a picture shows
picture    a picture before it is drawn; words of captions
labels     places for labels so that none covers another
legend     what colours and markers mean
rows       pictures made of rows
trade_off  the trade-off between time and accuracy
trade_off_layout where its axes begin, and where each point and name lies
trade_off_points which cases are its points, and what they tell
ratios     speed-up and change of accuracy
call_times how the time of calls is distributed
growth     threads and batch sizes
peaks      the share of what a core can do
layer_errors SQNR and clipping layer by layer
costs      size, memory, cold start
svg        a figure as inline SVG for a page
"""

from qbench.report.plots.call_times import latency
from qbench.report.plots.costs import footprint
from qbench.report.plots.growth import scaling
from qbench.report.plots.layer_errors import layers
from qbench.report.plots.peaks import roofline
from qbench.report.plots.ratios import accuracy, speedup
from qbench.report.plots.trade_off import pareto

__all__ = ["accuracy", "footprint", "latency", "layers", "pareto", "roofline", "scaling", "speedup"]
